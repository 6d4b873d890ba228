"""Whose git may have made an index lock that we cannot see it hold."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from sandboxd.workspace_guard.stale_lock import _is_git_of


def test_a_git_of_another_user_did_not_make_the_lock(tmp_path: Path) -> None:
    program = shutil.copy(shutil.which("sleep") or "", tmp_path / "git-commit")
    with subprocess.Popen([program, "600"]) as git, subprocess.Popen(["sleep", "600"]) as other:
        assert _is_git_of(str(git.pid), os.getuid())
        assert not _is_git_of(str(git.pid), os.getuid() + 1)
        assert not _is_git_of(str(other.pid), os.getuid())
        git.kill()
        other.kill()
