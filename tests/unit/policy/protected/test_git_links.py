"""Where a `.git` leads."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandboxd.policy.protected.git_links import git_dir_of
from sandboxd.workspace_guard.git import repository


@pytest.mark.parametrize(("times", "leads"), [(700, True), (1000, False), (200_000, False)])
def test_a_longer_path_than_the_kernel_follows_leads_nowhere(
    tmp_path: Path, times: int, leads: bool
) -> None:
    """Nor does git, and to resolve it takes a time that grows with its square."""
    folder = tmp_path.resolve()
    target = "a/../" * times + "x"
    (folder / "a").mkdir()
    pointer = folder / ".git"
    pointer.write_text(f"gitdir: {target}\n")
    assert git_dir_of(str(folder)) == str(folder / "x" if leads else pointer)
    assert repository._target(str(pointer)) == (target if leads else None)
