"""What a command made is found within bounds, and what the user had is judged first."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from sandboxd.policy.protected import distant_git, nested_git
from sandboxd.workspace_guard import running_commands
from sandboxd.workspace_guard.repositories import new_repositories
from sandboxd.workspace_guard.repositories.new_repositories import (
    FoundRepositories,
    NewRepositories,
)
from sandboxd.workspace_guard.run_clock import COARSE_NS
from sandboxd.workspace_guard.running_commands import Maker


def begin(workspace: Path) -> NewRepositories:
    time.sleep(2 * COARSE_NS / 1e9)  # what is there is older than the command
    return NewRepositories(nested_git.find(str(workspace), most=4))


def end(search: NewRepositories) -> FoundRepositories:
    changed = search.changed()
    assert changed is not None
    return search.find(changed)


@pytest.fixture
def deep(tmp_path: Path) -> Path:
    folder = tmp_path / "1/2/3/4/5/6/7"
    folder.mkdir(parents=True)
    return folder


def test_nothing_is_searched_where_nothing_changed(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    assert begin(tmp_path).changed() is None


@pytest.mark.parametrize("forgotten", [False, True])
def test_far_down(tmp_path: Path, deep: Path, forgotten: bool) -> None:
    """Also where the folders of the last search are not known any more."""
    search = begin(tmp_path)
    if forgotten:
        search = NewRepositories(search.before)
        search.searched = [None]
    (deep / ".git").mkdir()
    (deep / "new/.hg").mkdir(parents=True)
    made = end(search)
    assert (made.git, made.others) == ([str(deep)], [])
    assert (made.new_git, made.new_others) == ([], [str(deep / "new/.hg")])
    assert made.complete


def test_a_repository_that_was_there_before_the_command_is_left_alone(
    tmp_path: Path, deep: Path
) -> None:
    """The user made it after the last search."""
    nested_git.find(str(tmp_path), most=4)
    (deep / "own/.git").mkdir(parents=True)
    search = begin(tmp_path)
    (tmp_path / "1/2/3/4/5/6/new").mkdir()
    made = end(search)
    assert not made.git
    assert not made.new_git


def test_new_folders_keep_none_of_the_users_from_being_judged(
    tmp_path: Path, deep: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = tmp_path / "node_modules/away"
    (away / ".git").mkdir(parents=True)
    search = begin(tmp_path)
    monkeypatch.setattr(new_repositories, "MOST_FOLDERS", 20)
    for number in range(100):
        (tmp_path / f"a{number}").mkdir()
    (deep / ".git").mkdir()
    away.rename(tmp_path / "zz")
    made = end(search)
    assert sorted(made.git) == [str(deep), str(tmp_path / "zz")]
    assert not made.complete


def test_few_folders_are_remembered(tmp_path: Path, deep: Path) -> None:
    found = nested_git.find(str(tmp_path), most=4)
    last = found.distant[0].last
    assert last is not None
    assert str(deep) in last.folders
    for number in range(distant_git._MOST_KNOWN):
        other = tmp_path / f"other{number}"
        (other / "a").mkdir(parents=True)
        nested_git.find(str(other), most=1)
    assert found.distant[0].last is None


@pytest.mark.parametrize("runs", [True, False])
def test_a_folder_that_another_running_command_made_is_new(tmp_path: Path, runs: bool) -> None:
    """After the plan, and before the start: `git clone` makes the folder first."""
    before = nested_git.find(str(tmp_path))
    time.sleep(2 * COARSE_NS / 1e9)
    elder = Maker(before, ())
    running_commands.enter(elder)
    (tmp_path / "cloned").mkdir()
    time.sleep(2 * COARSE_NS / 1e9)
    elder.is_running = runs
    search = NewRepositories(before)
    running_commands.leave(elder)
    (tmp_path / "cloned/.git").mkdir()
    (tmp_path / "file").touch()
    made = end(search)
    assert (made.new_git if runs else made.git) == [str(tmp_path / "cloned")]
