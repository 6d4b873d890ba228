"""Missing protected paths: noticed when they appear, moved aside, nothing else touched."""

from __future__ import annotations

import errno
import os
import select
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from msgspec.structs import replace

from sandboxd.policy.plan import Protected
from sandboxd.policy.protected import paths as protected_paths
from sandboxd.workspace_guard.watch import absent_paths, folder_events
from sandboxd.workspace_guard.watch.absent_paths import AbsentPathsWatch
from sandboxd_proto.errors import PathDenied
from sandboxd_proto.locations import KEPT_FOLDER

Git = Callable[..., str]
Watch = Callable[..., AbsentPathsWatch]


@pytest.fixture
def watch() -> Iterator[Watch]:
    """Watch a workspace as a plan would, or the given names in it."""
    with ExitStack() as stack:

        def make(workspace: Path, *names: str, homes: tuple[str, ...] = ()) -> AbsentPathsWatch:
            root = str(workspace)
            kept = [Protected(f"{root}/{name}", root, present=False) for name in names]
            if not names:
                kept = protected_paths.for_workspace(root, (), homes=homes).protected
            return stack.enter_context(AbsentPathsWatch(kept))

        yield make


def ready(watch: AbsentPathsWatch) -> bool:
    return bool(select.select([watch], [], [], 0)[0])


def seen(watch: AbsentPathsWatch) -> list[str]:
    """Everything that is reported, as long as more is waiting."""
    found: list[str] = []
    while ready(watch):
        found += watch.appeared()
    return found


def swept(watch: AbsentPathsWatch) -> dict[str, str | None]:
    return {moved.path: moved.moved_to for moved in watch.sweep()}


def test_a_missing_path_that_appears_is_noticed_and_moved_aside(
    workspace: Path, watch: Watch
) -> None:
    one = watch(workspace)
    assert not ready(one)
    (workspace / "harmless").write_text("")
    assert seen(one) == []
    (workspace / ".envrc").write_text("evil")
    assert seen(one) == [f"{workspace}/.envrc"]
    assert one.appeared() == []
    (to,) = swept(one).values()
    assert to is not None
    assert Path(to).read_text() == "evil"
    assert not (workspace / ".envrc").exists()
    assert one.sweep() == []


def test_a_path_that_is_moved_into_place_is_noticed(workspace: Path, watch: Watch) -> None:
    (workspace / "x").mkdir()
    one = watch(workspace)
    (workspace / "x").rename(workspace / ".vscode")
    assert seen(one) == [f"{workspace}/.vscode"]
    assert list(swept(one)) == [f"{workspace}/.vscode"]


def test_what_came_and_went_is_reported_and_nothing_is_moved(workspace: Path, watch: Watch) -> None:
    one = watch(workspace)
    (workspace / ".envrc").write_text("")
    (workspace / ".envrc").unlink()
    assert seen(one) == [f"{workspace}/.envrc"]
    assert one.sweep() == []
    assert not any(p.name.startswith(KEPT_FOLDER) for p in workspace.iterdir())


def test_a_path_in_folders_that_do_not_exist_yet_is_followed_down(
    workspace: Path, watch: Watch
) -> None:
    one = watch(workspace, "a/b/c/file")
    (workspace / "a").mkdir()
    assert seen(one) == []
    (workspace / "a" / "b").mkdir()
    assert seen(one) == []
    (workspace / "a" / "b" / "c").mkdir()
    assert seen(one) == []
    (workspace / "a" / "b" / "c" / "file").write_text("")
    assert seen(one) == [f"{workspace}/a/b/c/file"]


def test_a_folder_of_the_same_name_further_up_is_no_appearance(
    workspace: Path, watch: Watch
) -> None:
    one = watch(workspace, "a/b/a")
    (workspace / "a").mkdir()
    assert seen(one) == []
    (workspace / "a" / "b" / "a").mkdir(parents=True)
    assert seen(one) == [f"{workspace}/a/b/a"]


def test_folders_that_appear_at_once_hide_nothing(workspace: Path, watch: Watch) -> None:
    one = watch(workspace, "a/b/c/file")
    (workspace / "a" / "b" / "c").mkdir(parents=True)
    (workspace / "a" / "b" / "c" / "file").write_text("")
    assert seen(one) == [f"{workspace}/a/b/c/file"]


def test_a_folder_that_was_removed_and_made_again_is_watched_again(
    workspace: Path, watch: Watch
) -> None:
    (workspace / "a").mkdir()
    one = watch(workspace, "a/file")
    (workspace / "a").rmdir()
    assert seen(one) == []
    (workspace / "a").mkdir()
    assert seen(one) == []
    (workspace / "a" / "file").write_text("")
    assert seen(one) == [f"{workspace}/a/file"]


def test_a_folder_that_moved_away_is_no_longer_the_one(workspace: Path, watch: Watch) -> None:
    (workspace / "a").mkdir()
    one = watch(workspace, "a/file")
    (workspace / "a").rename(workspace / "z")
    assert seen(one) == []
    (workspace / "z" / "file").write_text("")
    assert seen(one) == []
    (workspace / "z").rename(workspace / "a")
    assert seen(one) == [f"{workspace}/a/file"]


def test_a_symlink_in_the_place_of_a_folder_is_moved_and_never_followed(
    workspace: Path, base: Path, watch: Watch
) -> None:
    outside = base / "outside"
    (outside / "b").mkdir(parents=True)
    (outside / "b" / "file").write_text("theirs")
    one = watch(workspace, "a/b/file")
    (workspace / "a").symlink_to(outside)
    assert seen(one) == [f"{workspace}/a"]
    assert list(swept(one)) == [f"{workspace}/a"]
    assert (outside / "b" / "file").read_text() == "theirs"
    assert not os.path.lexists(workspace / "a")


def test_a_symlink_that_was_there_may_stay_and_may_not_be_replaced(
    workspace: Path, watch: Watch
) -> None:
    (workspace / "editor").mkdir()
    (workspace / ".vscode").symlink_to("editor")
    one = watch(workspace)
    assert one.sweep() == []
    (workspace / ".vscode").unlink()
    (workspace / ".vscode").symlink_to("editor")
    assert seen(one) == [f"{workspace}/.vscode"]
    assert list(swept(one)) == [f"{workspace}/.vscode"]
    assert (workspace / "editor").is_dir()


def test_a_path_that_exists_by_now_means_that_the_plan_is_old(
    workspace: Path, watch: Watch
) -> None:
    (workspace / ".envrc").write_text("")
    with pytest.raises(PathDenied):
        watch(workspace, ".envrc")
    (workspace / "a").symlink_to(".")
    with pytest.raises(PathDenied):
        watch(workspace, "a/file")


def test_rights_taken_away_do_not_save_what_is_forbidden(workspace: Path, watch: Watch) -> None:
    (workspace / "a").mkdir()
    one = watch(workspace, "a/b")
    (workspace / "a" / "b").mkdir()
    (workspace / "a" / "b" / "inner").write_text("x")
    (workspace / "a" / "b").chmod(0)
    (workspace / "a").chmod(0)
    (to,) = swept(one).values()
    assert to is not None
    assert not (workspace / "a" / "b").exists()


def test_the_quarantine_is_private_inert_and_ignored_by_git(
    repository: Path, watch: Watch, git: Git
) -> None:
    one = watch(repository)
    (repository / ".vscode").mkdir()
    (to,) = swept(one).values()
    assert to is not None
    assert stat.S_IMODE(os.stat(os.path.dirname(to)).st_mode) == 0o700
    assert os.path.basename(to) == "1-%2Evscode"
    assert os.path.dirname(os.path.dirname(to)) == str(repository / KEPT_FOLDER)
    assert git(repository, "status", "--porcelain") == ""


@pytest.mark.requires("root")
def test_the_quarantine_belongs_to_the_owner_of_the_workspace(
    workspace: Path, watch: Watch
) -> None:
    os.chown(workspace, 1234, 1235)
    one = watch(workspace)
    (workspace / ".envrc").write_text("")
    (to,) = swept(one).values()
    assert to is not None
    assert os.stat(os.path.dirname(to)).st_uid == 1234


@pytest.mark.parametrize("removable", [True, False])
def test_what_cannot_be_moved_is_removed_or_reported_as_still_there(
    workspace: Path, watch: Watch, monkeypatch: pytest.MonkeyPatch, removable: bool
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EIO, "")

    monkeypatch.setattr("sandboxd.workspace_guard.quarantine.quarantine.rename", refuse)
    if not removable:
        monkeypatch.setattr(
            "sandboxd.workspace_guard.quarantine.quarantine.remove_at", lambda *_: False
        )
    one = watch(workspace)
    (workspace / ".envrc").write_text("")
    (moved,) = one.sweep()
    assert (moved.path, moved.moved_to) == (f"{workspace}/.envrc", None)
    assert bool(moved.error) is not removable
    assert (workspace / ".envrc").exists() is not removable


def test_without_inotify_everything_is_looked_at_again_and_again(
    workspace: Path, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left() -> None:
        raise OSError(errno.EMFILE, "")

    monkeypatch.setattr(folder_events, "Inotify", none_left)
    one = watch(workspace)
    (workspace / ".envrc").write_text("")
    assert select.select([one], [], [], 60)[0]
    assert one.appeared() == [f"{workspace}/.envrc"]


def test_when_watches_run_out_the_clock_takes_over(
    workspace: Path, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = watch(workspace, "a/file")

    def none_left(*_: object) -> int:
        raise OSError(errno.ENOSPC, "")

    monkeypatch.setattr(folder_events.Inotify, "add", none_left)
    (workspace / "a").mkdir()
    assert seen(one) == []
    (workspace / "a" / "file").write_text("")
    assert select.select([one], [], [], 60)[0]
    assert one.appeared() == [f"{workspace}/a/file"]


def test_nothing_stays_open(workspace: Path) -> None:
    before = os.listdir("/proc/self/fd")
    root = str(workspace)
    with AbsentPathsWatch(protected_paths.for_workspace(root, ()).protected) as one:
        (workspace / ".envrc").write_text("")
        one.appeared()
        one.sweep()
    (workspace / "x").mkdir()
    with pytest.raises(PathDenied):
        AbsentPathsWatch([Protected(f"{root}/x", root, present=False)])
    assert os.listdir("/proc/self/fd") == before


def test_a_home_as_the_workspace_watches_its_start_up_files(home: Path, watch: Watch) -> None:
    (home / ".config").mkdir()
    one = watch(home, homes=(str(home),))
    (home / ".config" / "autostart").mkdir()
    (home / ".zshrc").write_text("")
    (home / ".cargo").mkdir()
    (home / ".cargo" / "config.toml").write_text("")
    names = {".config/autostart", ".zshrc", ".cargo/config.toml"}
    assert set(seen(one)) == {f"{home}/{name}" for name in names}
    assert set(swept(one)) == {f"{home}/{name}" for name in names}
    assert (home / ".cargo").is_dir()


@pytest.mark.parametrize("planted", ["a link out", "a file"])
def test_what_stands_in_the_place_of_the_shared_folder_is_not_followed(
    workspace: Path, watch: Watch, tmp_path: Path, planted: str
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    one = watch(workspace)
    if planted == "a link out":
        (workspace / KEPT_FOLDER).symlink_to(outside)
    else:
        (workspace / KEPT_FOLDER).write_text("")
    (workspace / ".envrc").write_text("export X=1\n")
    (to,) = swept(one).values()
    assert to is not None
    assert os.path.basename(os.path.dirname(to)).startswith(f"{KEPT_FOLDER}-")
    assert Path(to).read_text() == "export X=1\n"
    assert not list(outside.iterdir())
    assert not (workspace / ".envrc").exists()


def test_all_runs_share_one_folder(workspace: Path, watch: Watch) -> None:
    for _ in range(2):
        one = watch(workspace)
        (workspace / ".envrc").write_text("")
        assert len(swept(one)) == 1
    kept = [path for path in workspace.iterdir() if path.name.startswith(KEPT_FOLDER)]
    assert [path.name for path in kept] == [KEPT_FOLDER]


@pytest.mark.parametrize("shout", [str.upper, lambda name: f"{name}\N{ZERO WIDTH JOINER}"])
def test_names_that_a_file_system_takes_for_the_same(
    workspace: Path, watch: Watch, monkeypatch: pytest.MonkeyPatch, shout: Callable[[str], str]
) -> None:
    """As on one that ignores case (and more): it lists other spellings than it finds files by."""
    real_read, real_list = folder_events.Inotify.read, absent_paths.list_names

    def read(self: folder_events.Inotify) -> Iterator[folder_events.InotifyEvent]:
        for event in real_read(self):
            yield replace(event, name=shout(event.name))

    def list_names(folder: int, most: int) -> list[str] | None:
        names = real_list(folder, most)
        return None if names is None else [*map(shout, names)]

    monkeypatch.setattr(folder_events.Inotify, "read", read)
    monkeypatch.setattr(absent_paths, "list_names", list_names)
    one = watch(workspace)
    assert one.calm
    (workspace / ".envrc").write_text("")
    (workspace / "HEAD").write_text("ref: refs/heads/main\n")
    (workspace / "objects").mkdir()
    (workspace / "refs").mkdir()
    paths = {f"{workspace}/.envrc", str(workspace)}
    assert set(seen(one)) == paths
    assert not one.calm
    assert set(swept(one)) == paths
    assert not (workspace / ".envrc").exists()
