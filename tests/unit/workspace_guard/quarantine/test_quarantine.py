"""What a command prepares so that nothing can be moved aside: the protected path goes anyway."""

from __future__ import annotations

import errno
import os
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.users import unprivileged_user

from sandboxd.workspace_guard.dirfd import find
from sandboxd.workspace_guard.quarantine import quarantine
from sandboxd.workspace_guard.quarantine.quarantine import Moved, Quarantine
from sandboxd.workspace_guard.run_clock import TICK_NS
from sandboxd_proto.locations import KEPT_FOLDER

# Version 2; owner, group and others without any right.
NO_RIGHTS = struct.pack("<I", 2) + b"".join(
    struct.pack("<HHI", tag, 0, 0xFFFF_FFFF) for tag in (0x01, 0x04, 0x20)
)


@pytest.fixture
def root(tmp_path: Path) -> Iterator[int]:
    fd = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    yield fd
    os.close(fd)


def take(root: int, folder: Path, name: str) -> Moved:
    kept = Quarantine(root, str(folder))
    try:
        with find(root, str(folder), str(folder / name)) as entry:
            assert entry is not None
            return kept.take(entry)
    finally:
        kept.close()


def test_a_default_access_list_does_not_keep_it_in_place(root: int, tmp_path: Path) -> None:
    (tmp_path / ".envrc").write_text("run me")
    os.setxattr(tmp_path, "system.posix_acl_default", NO_RIGHTS)
    moved = take(root, tmp_path, ".envrc")
    assert not (tmp_path / ".envrc").exists()
    assert moved.error == ""


def test_a_folder_on_another_volume_does_not_keep_it_in_place(
    root: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As an encrypted folder or a subvolume of btrfs at the name of the kept folder."""
    (tmp_path / ".envrc").write_text("run me")
    moves = quarantine.rename

    def refuse(from_dir: int, from_name: str, to_dir: int, to_name: str) -> None:
        if to_dir != root:
            raise OSError(errno.EXDEV, "another volume")
        moves(from_dir, from_name, to_dir, to_name)

    monkeypatch.setattr(quarantine, "rename", refuse)
    moved = take(root, tmp_path, ".envrc")
    assert not (tmp_path / ".envrc").exists()
    assert moved.moved_to is not None
    assert Path(moved.moved_to).read_text() == "run me"


def test_what_cannot_be_moved_at_all_is_removed(
    root: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".vscode").mkdir()
    (tmp_path / ".vscode/tasks.json").write_text("{}")

    def refuse(*words: object) -> None:
        raise OSError(errno.EXDEV, "another volume")

    monkeypatch.setattr(quarantine, "rename", refuse)
    assert take(root, tmp_path, ".vscode") == Moved(str(tmp_path / ".vscode"), None)
    assert not (tmp_path / ".vscode").exists()


@pytest.mark.requires("root")
def test_a_folder_of_another_owner_is_not_used(root: int, tmp_path: Path) -> None:
    """A command renames a folder of root, in a workspace of its own, to the kept folder's name."""
    os.chown(tmp_path, unprivileged_user().pw_uid, -1)
    (tmp_path / KEPT_FOLDER).mkdir()
    (tmp_path / KEPT_FOLDER / ".gitignore").write_text("root's")
    (tmp_path / ".envrc").write_text("run me")
    moved = take(root, tmp_path, ".envrc")
    assert not (tmp_path / ".envrc").exists()
    assert moved.moved_to is not None
    assert not moved.moved_to.startswith(f"{tmp_path / KEPT_FOLDER}/")
    assert os.listdir(tmp_path / KEPT_FOLDER) == [".gitignore"]
    assert (tmp_path / KEPT_FOLDER / ".gitignore").read_text() == "root's"


@pytest.mark.requires("root")
@pytest.mark.parametrize("content", ["a file", "nothing"])
def test_folder_of_root_that_is_put_in_the_place_of_a_new_one_stays_roots(
    root: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str
) -> None:
    """Between mkdir and open: the daemon gives what it made to the owner of the workspace."""
    theirs = tmp_path / "of root"
    theirs.mkdir()
    if content == "a file":
        (theirs / "file").write_text("")
    inode = theirs.stat().st_ino
    time.sleep(2 * TICK_NS / 1e9)
    owner = unprivileged_user()
    os.chown(tmp_path, owner.pw_uid, owner.pw_gid)
    real = os.mkdir

    def make(path: str, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        real(path, mode, dir_fd=dir_fd)
        if theirs.exists():
            os.rmdir(path, dir_fd=dir_fd)
            os.rename(theirs, path, dst_dir_fd=dir_fd)

    monkeypatch.setattr(os, "mkdir", make)
    (tmp_path / ".envrc").write_text("run me")
    moved = take(root, tmp_path, ".envrc")
    monkeypatch.undo()
    assert moved.error == ""
    assert not (tmp_path / ".envrc").exists()
    (now,) = [one for one in tmp_path.rglob("*") if one.stat().st_ino == inode]
    assert now.stat().st_uid == 0
