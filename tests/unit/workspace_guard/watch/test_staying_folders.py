"""A protected folder stays while its command runs: what is moved from it, and what ends that."""

from __future__ import annotations

import errno
import os
import select
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandboxd.policy.plan import Protected
from sandboxd.workspace_guard.watch import folder_events
from sandboxd.workspace_guard.watch.absent_paths import AbsentPathsWatch

PATIENCE_S = 30


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[AbsentPathsWatch]:
    root = os.path.realpath(tmp_path)
    names = (".vscode", ".envrc")
    protected = [Protected(f"{root}/{name}", root, present=False) for name in names]
    with AbsentPathsWatch(protected) as made:
        yield made


def handle(watch: AbsentPathsWatch) -> list[str]:
    """What the guard does when the watch has news."""
    select.select([watch], [], [], 1)
    found = [*watch.appeared(), *watch.judge_unread()]
    if found:
        watch.sweep_only(found)
    return found


def handle_until_gone(watch: AbsentPathsWatch, path: Path) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while os.path.lexists(path) and time.monotonic() < deadline:
        handle(watch)
    assert not os.path.lexists(path)


def begin(watch: AbsentPathsWatch, tmp_path: Path) -> Path:
    folder = tmp_path / ".vscode"
    folder.mkdir()
    assert handle(watch) == [str(folder)]
    assert folder.is_dir()
    return folder


def kept_in(tmp_path: Path) -> list[Path]:
    return sorted(tmp_path.glob(".sandboxd-kept/*/*vscode"))


def test_files_go_a_moment_later_and_the_folder_in_the_end(
    watch: AbsentPathsWatch, tmp_path: Path
) -> None:
    folder = begin(watch, tmp_path)
    (folder / "inner").mkdir()
    for text in ("old", "new"):
        (folder / "inner" / "file").write_text(text)
        handle_until_gone(watch, folder / "inner" / "file")
        assert (folder / "inner").is_dir()
    (folder / "last").write_text("last")
    (kept,) = kept_in(tmp_path)
    assert [(one.path, one.moved_to, one.error) for one in watch.sweep()] == [
        (str(folder), str(kept), "")
    ]
    assert not folder.exists()
    assert (kept / "inner" / "file").read_text() == "new"
    assert (kept / "last").read_text() == "last"
    assert watch.sweep() == []


def test_a_new_file_of_a_known_name_is_given_its_moment(
    watch: AbsentPathsWatch, tmp_path: Path
) -> None:
    """A program that writes each file under the same temporary name, and renames it."""
    folder = begin(watch, tmp_path)
    for number in range(12):
        (folder / "draft").write_text(str(number))
        handle(watch)
        (folder / "draft").rename(folder / str(number))
    watch.sweep()
    (kept,) = kept_in(tmp_path)
    assert {path.name: path.read_text() for path in kept.iterdir()} == {
        str(number): str(number) for number in range(12)
    }


def test_no_look_reports_a_folder_that_stays_again(watch: AbsentPathsWatch, tmp_path: Path) -> None:
    """Each report counts towards the end of the command."""
    folder = begin(watch, tmp_path)
    for number in range(40):
        (folder / str(number)).write_text("")
        assert handle(watch) == []
    assert not watch.ends_command(str(folder))


@pytest.mark.parametrize("what", ["a file", "a folder", "the folder itself"])
def test_what_appears_again_and_again_ends_the_command(
    watch: AbsentPathsWatch, tmp_path: Path, what: str
) -> None:
    """Also if no look finds it. Not at once: git does so when it goes to and fro."""
    folder = begin(watch, tmp_path)
    found: list[str] = []
    for number in range(100):
        if number == 60:
            assert not watch.ends_command(str(folder))
        if what == "a file":
            (folder / "tasks.json").write_text("")
            (folder / "tasks.json").unlink()
        elif what == "a folder":
            (folder / "inner").mkdir()
            (folder / "inner").rmdir()
        else:
            folder.rmdir()
            folder.mkdir()
        found += watch.appeared()
    assert found == [str(folder)]
    assert watch.ends_command(str(folder))


def test_a_name_that_appears_often_is_given_no_more_time(
    watch: AbsentPathsWatch, tmp_path: Path
) -> None:
    folder = begin(watch, tmp_path)
    for _ in range(20):
        (folder / "tasks.json").write_text("")
        (folder / "tasks.json").unlink()
        assert watch.appeared() == []  # the kernel merges equal events that are not read
    (folder / "tasks.json").write_text("")
    (folder / "other").write_text("")
    assert [*watch.appeared(), *watch.judge_unread()] == []
    assert os.listdir(folder) == ["other"]


@pytest.mark.requires("root")
def test_a_folder_of_another_user_is_not_emptied(watch: AbsentPathsWatch, tmp_path: Path) -> None:
    """The owner of the workspace can rename a folder of root's, and not what is in it."""
    os.chown(tmp_path, 1234, 1235)
    folder = begin(watch, tmp_path)
    os.chown(folder, 1234, 1235)
    (folder / "file").write_text("root's")
    (folder / "inner").mkdir()
    (folder / "inner" / "file").write_text("root's")
    handle_until_gone(watch, folder)
    (found,) = tmp_path.rglob("inner/file")
    assert found.parent.stat().st_uid == 0


def test_a_kept_folder_that_was_deleted_is_made_again(
    watch: AbsentPathsWatch, tmp_path: Path
) -> None:
    """`git clean -x`. The folder is then moved as a whole."""
    folder = begin(watch, tmp_path)
    (kept,) = kept_in(tmp_path)
    kept.rmdir()
    (folder / "file").write_text("text")
    handle_until_gone(watch, folder)
    (kept,) = kept_in(tmp_path)
    assert (kept / "file").read_text() == "text"


@pytest.mark.parametrize("other", ["file", "link"])
def test_something_else_in_the_place_of_the_folder_goes_at_once(
    watch: AbsentPathsWatch, tmp_path: Path, other: str
) -> None:
    folder = begin(watch, tmp_path)
    folder.rmdir()
    if other == "file":
        folder.write_text("")
    else:
        folder.symlink_to("elsewhere")
    assert handle(watch) == [str(folder)]
    assert not os.path.lexists(folder)


def test_a_folder_that_cannot_be_watched_does_not_stay(
    watch: AbsentPathsWatch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left(*_: object) -> int:
        raise OSError(errno.ENOSPC, "")

    monkeypatch.setattr(folder_events.Inotify, "add", none_left)
    (tmp_path / ".vscode").mkdir()
    (tmp_path / ".vscode" / "file").write_text("")
    handle(watch)
    assert not (tmp_path / ".vscode").exists()


def test_a_single_file_still_goes_at_once(watch: AbsentPathsWatch, tmp_path: Path) -> None:
    begin(watch, tmp_path)
    (tmp_path / ".envrc").write_text("")
    assert handle(watch) == [f"{os.path.realpath(tmp_path)}/.envrc"]
    assert not (tmp_path / ".envrc").exists()


def test_after_the_end_no_clock_ticks(watch: AbsentPathsWatch, tmp_path: Path) -> None:
    """A persistent sandbox waits for its next command, in which a folder stays again."""
    for _ in range(2):
        folder = begin(watch, tmp_path)
        watch.settle()
        assert len(watch.sweep()) == 1
        watch.appeared()
        assert not select.select([watch], [], [], 0.1)[0]
    assert not folder.exists()
    assert len(kept_in(tmp_path)) == 2


def test_no_descriptor_stays_open(tmp_path: Path) -> None:
    before = os.listdir("/proc/self/fd")
    root = os.path.realpath(tmp_path)
    with AbsentPathsWatch([Protected(f"{root}/.vscode", root, present=False)]) as watch:
        folder = begin(watch, tmp_path)
        (folder / "inner").mkdir()
        (folder / "inner" / "file").write_text("")
        handle_until_gone(watch, folder / "inner" / "file")
    assert os.listdir("/proc/self/fd") == before


def test_without_a_command_the_folder_goes_if_no_other_watch_joins(
    watch: AbsentPathsWatch, tmp_path: Path
) -> None:
    """As between the commands of a persistent sandbox, whose background processes run on."""
    folder = tmp_path / ".vscode"
    for text in ("one", "two"):
        folder.mkdir()
        (folder / "file").write_text(text)
        watch.sweep_only(watch.appeared(), finished=True)
        assert folder.is_dir()
        deadline = time.monotonic() + PATIENCE_S
        while folder.exists() and time.monotonic() < deadline:
            select.select([watch], [], [], 1)
            watch.appeared()
            assert watch.judge_all() == []
        assert not folder.exists()
    assert sorted((path / "file").read_text() for path in kept_in(tmp_path)) == ["one", "two"]


def test_without_a_command_the_folder_is_left_to_the_watch_of_another_one(
    watch: AbsentPathsWatch, tmp_path: Path
) -> None:
    root = os.path.realpath(tmp_path)
    with AbsentPathsWatch([Protected(f"{root}/.vscode", root, present=False)]) as of_command:
        folder = tmp_path / ".vscode"
        folder.mkdir()
        watch.sweep_only(watch.appeared(), finished=True)
        assert handle(of_command) == [str(folder)]
        time.sleep(0.3)  # longer than the first one waits for the other
        assert watch.judge_all() == []
        assert folder.is_dir()
        (folder / "file").write_text("text")
        assert len(of_command.sweep()) == 1
    assert not folder.exists()
    (kept,) = kept_in(tmp_path)
    assert (kept / "file").read_text() == "text"


def test_the_folder_that_keeps_its_files_is_not_emptied_into_itself(
    watch: AbsentPathsWatch, tmp_path: Path
) -> None:
    """Someone moves it to where the files came from, while the command runs."""
    folder = begin(watch, tmp_path)
    (folder / "file").write_text("precious")
    handle_until_gone(watch, folder / "file")
    (kept,) = kept_in(tmp_path)
    folder.rmdir()
    kept.rename(folder)
    handle_until_gone(watch, folder)
    watch.sweep()
    assert [(one / "file").read_text() for one in kept_in(tmp_path)] == ["precious"]
