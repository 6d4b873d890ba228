"""A folder of the user that becomes a repository is found, whatever else a command makes."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandboxd.policy.data.protected_names import WORKSPACE
from sandboxd.policy.protected.nested_git import Repositories
from sandboxd.workspace_guard.repositories import new_repositories
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
    assert warnings.planted(changed).git == {str(tmp_path): [str(tmp_path / "z")]}
    assert len(warnings.look()) <= MOST_NAMED + 1


def test_files_that_run_later_are_named_in_a_repository_that_the_command_made(
    tmp_path: Path,
) -> None:
    warnings = RunWarnings(Repositories(roots=(str(tmp_path),), folders=(str(tmp_path),)))
    (tmp_path / ".envrc").touch()
    for name in (".git", "b/.git", "b/.vscode", "b/src", "c/.git", "d/.git"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "b/.envrc").symlink_to("nowhere")
    (tmp_path / "b/src/.envrc").touch()
    for name in sorted(WORKSPACE)[:12]:
        (tmp_path / "d" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "d" / name).touch()
    warnings.planted(warnings.changed() or ())
    root, b, c, d = warnings.look()
    assert root.endswith(" or add it to another repository with git add"), "it is protected there"
    assert b.endswith(" can run code then, or later: .envrc, .vscode")
    assert c.endswith("its config and hooks run no programs"), "one around leads git there"
    assert d.endswith(f"{sorted(WORKSPACE)[7]} and 4 more")


@pytest.mark.parametrize("is_opened", [True, False])
def test_what_anyone_may_have_done_meanwhile_is_not_said_of_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_opened: bool
) -> None:
    """Each closed folder has one line."""
    warnings = RunWarnings(Repositories(roots=(str(tmp_path),), folders=(str(tmp_path),)))
    for name in ("closed", "made/.git", "made/.hg"):
        (tmp_path / name).mkdir(parents=True)
    closed, opened = str(tmp_path / "closed"), set[str]()

    def restore(root: str, folder: str) -> bool:
        opened.update([folder] if is_opened else [])
        return is_opened

    monkeypatch.setattr(
        new_repositories.files, "access", lambda path, mode: path != closed or path in opened
    )
    monkeypatch.setattr(new_repositories, "restore_access", restore)
    warnings.planted(warnings.changed() or ())
    said = warnings.look()
    assert [line.startswith(f"{closed} ") for line in said] == [False, False, True]
    assert "was closed (chmod) while the command ran" in said[-1]
    assert not any(line.startswith("the command") for line in said)
