"""Every change that leads a path elsewhere, or gives a folder another mode, is told."""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sandboxd.linux import folder_notices
from sandboxd.linux.folder_notices import InotifyNotices, InotifyWatch

_libc = ctypes.CDLL(None, use_errno=True)


@pytest.fixture
def notices(tmp_path: Path) -> Iterator[InotifyNotices]:
    """With a copy of the mounts: any other program may change them while a test runs."""
    mounts = tmp_path / "mountinfo"
    mounts.write_bytes(Path("/proc/self/mountinfo").read_bytes())
    made = InotifyNotices(str(mounts))
    yield made
    made.close()


@pytest.fixture
def folder(tmp_path: Path, notices: InotifyNotices) -> Path:
    made = tmp_path / "above" / "folder"
    made.mkdir(parents=True)
    if notices.node(str(made), made.stat().st_dev) is None:
        pytest.skip("the file system of the temporary folder has no reliable events")
    return made


def watch(notices: InotifyNotices, *folders: Path, entries: bool = False) -> InotifyWatch:
    found = notices.watch({str(one): (one.stat().st_dev, entries) for one in folders})
    assert found is not None
    assert found.changes() == set()
    return found


def exchange(one: Path, other: Path) -> None:
    assert _libc.renameat2(-100, os.fsencode(one), -100, os.fsencode(other), 2) == 0


def replaced(folder: Path) -> None:
    other = folder.with_name("other")
    other.mkdir()
    os.rename(other, folder)  # over an empty one


CHANGES: dict[str, Callable[[Path], object]] = {
    "renamed": lambda folder: folder.rename(folder.with_name("away")),
    "removed": lambda folder: folder.rmdir(),
    "replaced": replaced,
    "mode": lambda folder: folder.chmod(0o711),
    "mode and back": lambda folder: (folder.chmod(0o711), folder.chmod(0o755)),
    "above renamed": lambda folder: folder.parent.rename(folder.parent.with_name("away")),
    "far above renamed": lambda folder: folder.parent.parent.rename(
        folder.parent.parent.with_name(folder.parent.parent.name + "-away")
    ),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_leads_elsewhere_is_told_at_once(
    notices: InotifyNotices, folder: Path, change: Callable[[Path], object]
) -> None:
    held = os.open(folder, os.O_RDONLY)  # an inode in use tells nothing when its name goes
    try:
        found = watch(notices, folder)
        change(folder)
        assert found.changes() == {str(folder)}
    finally:
        os.close(held)


def test_an_exchange_is_told_each_time(notices: InotifyNotices, folder: Path) -> None:
    other = folder.with_name("other")
    other.mkdir()
    found = watch(notices, folder)
    for _ in range(4):
        exchange(folder, other)
        assert found.changes() == {str(folder)}
        assert found.changes() == set()


def test_below_a_folder_that_was_exchanged_is_watched_anew(
    notices: InotifyNotices, folder: Path
) -> None:
    """The folder's own watch may have been made while another one had its name."""
    decoy = folder.parent.with_name("decoy")
    (decoy / "folder").mkdir(parents=True)
    exchange(folder.parent, decoy)
    notices.node(str(folder), folder.stat().st_dev)
    exchange(folder.parent, decoy)
    found = notices.watch({str(folder): (folder.stat().st_dev, False)})
    assert found is not None
    found.changes()
    folder.chmod(0o711)
    assert found.changes() == {str(folder)}


def test_entries_are_told_where_they_count(notices: InotifyNotices, folder: Path) -> None:
    without, with_entries = watch(notices, folder), watch(notices, folder, entries=True)
    (folder / "file").touch()
    assert without.changes() == set()
    assert with_entries.changes() == {str(folder)}


def test_a_name_in_another_spelling_counts(notices: InotifyNotices, folder: Path) -> None:
    """A file system that ignores case has one folder for both."""
    found = watch(notices, folder)
    folder.with_name("FOLDER").mkdir()
    assert found.changes() == {str(folder)}
    folder.with_name("Folder\u212a").mkdir()
    assert found.changes() == {str(folder)}
    folder.with_name("unrelated").mkdir()
    assert found.changes() == set()


def test_what_cannot_be_watched_is_always_to_be_looked_at(
    notices: InotifyNotices, folder: Path
) -> None:
    proc = Path("/proc/self")
    found = notices.watch({"/proc/self": (proc.stat().st_dev, False)})
    assert found is not None
    assert found.changes() == {"/proc/self"}
    assert found.changes() == {"/proc/self"}


def test_too_many_events_count_as_a_change_of_all(
    notices: InotifyNotices, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_notices, "MOST_READS", 1)
    found = watch(notices, folder)
    for number in range(2000):
        (folder / f"{number}").touch()
    assert found.changes() is None
    assert watch(notices, folder).changes() == set()


def test_after_many_overflows_nothing_is_watched(notices: InotifyNotices, folder: Path) -> None:
    for _ in range(folder_notices.MOST_OVERFLOWS):
        notices._overflow()
    assert notices.watch({str(folder): (folder.stat().st_dev, False)}) is None


def test_closed_watches_leave_nothing(notices: InotifyNotices, folder: Path) -> None:
    notices._drop(notices._nodes["/"])
    found = watch(notices, folder)
    assert str(folder) in notices._nodes
    found.close()
    assert not notices._nodes
    assert not notices._by_watch


@pytest.mark.requires("root")
@pytest.mark.isolation
def test_a_mount_counts_as_a_change_of_all(folder: Path) -> None:
    with contextlib.closing(InotifyNotices()) as notices:
        asked = {str(folder): (folder.stat().st_dev, False)}
        found = notices.watch(asked)
        assert found is not None
        subprocess.run(["mount", "-t", "tmpfs", "none", folder], check=True)
        try:
            assert found.changes() is None
            # A mount of another program may come between.
            assert {str(folder)} in [_told(notices, folder, 0o700 + n) for n in range(8)]
            found = notices.watch(asked)
            assert found is not None
        finally:
            subprocess.run(["umount", folder], check=True)
        assert found.changes() is None


def _told(notices: InotifyNotices, folder: Path, mode: int) -> set[str] | None:
    found = notices.watch({str(folder): (folder.stat().st_dev, False)})
    assert found is not None
    found.changes()
    folder.chmod(mode)
    return found.changes()
