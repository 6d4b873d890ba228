"""A folder of the user that becomes a repository is found, whatever else a command makes."""

from __future__ import annotations

from pathlib import Path

from sandboxd.policy.protected.nested_git import Repositories
from sandboxd.workspace_guard.run_warnings import MOST_NAMED, RunWarnings


def test_many_repositories_of_the_commands_own_do_not_hide_one_in_a_folder_of_the_user(
    tmp_path: Path,
) -> None:
    folders = [tmp_path, tmp_path / "a", tmp_path / "z"]
    for folder in folders[1:]:
        folder.mkdir()
    warnings = RunWarnings(Repositories(roots=(str(tmp_path),), folders=tuple(map(str, folders))))
    for number in range(MOST_NAMED + 5):
        (tmp_path / "a" / str(number) / ".git").mkdir(parents=True)
    (tmp_path / "z" / ".git").mkdir()
    changed = warnings.changed()
    assert changed is not None
    assert warnings.overtaken(changed).git == {str(tmp_path): [str(tmp_path / "z")]}
    assert len(warnings.look()) <= MOST_NAMED + 1
