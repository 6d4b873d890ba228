"""Records of ReadDirectoryChangesW, and what a sweep finds by names."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sandboxd.platform.current import files
from sandboxd.policy.plan import Protected, Rule
from sandboxd.windows.change_records import records
from sandboxd.workspace_guard.kept_folder import KeptFolder, unpinned
from sandboxd.workspace_guard.sweep_only import SweepOnly
from sandboxd_client.cli import kept
from sandboxd_proto.locations import KEPT_FOLDER


def record(action: int, name: str, *, last: bool) -> bytes:
    body = name.encode("utf-16-le")
    size = 12 + len(body)
    padding = -size % 4
    return (
        struct.pack("<III", 0 if last else size + padding, action, len(body))
        + body
        + bytes(padding)
    )


def test_records_are_read_in_order() -> None:
    data = record(1, "a\\b", last=False) + record(5, "ü", last=True)
    assert list(records(data + bytes(8))) == [(1, "a/b"), (5, "ü")]


@pytest.mark.parametrize(
    "data",
    [b"", b"\0" * 11, struct.pack("<III", 0, 1, 99), struct.pack("<III", 4, 1, 0) + b"\0" * 9],
)
def test_garbage_is_no_record(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        list(records(data))


def watched(root: Path, name: str, rule: Rule = "absent") -> Protected:
    base = files.internal(str(root))
    path = f"{base}/{name}" if name else base
    return Protected(path, base, present=False, rule=rule)


def test_what_was_missing_and_appears_is_moved_aside(tmp_path: Path) -> None:
    watch = SweepOnly([watched(tmp_path, "made"), watched(tmp_path, "not")])
    (tmp_path / "made").write_text("x")
    (found,) = watch.sweep()
    assert found.path.endswith("/made")
    assert not (tmp_path / "made").exists()
    assert watch.sweep() == []


def test_a_git_dir_gets_only_what_git_makes_every_day(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("")
    watch = SweepOnly([watched(tmp_path, "", "git_dir")])
    for name in ("HEAD", "index", "index.lock", "hooks", "commondir", "config.worktree"):
        (tmp_path / name).write_text("")
    found = {one.path.rpartition("/")[2] for one in watch.sweep()}
    assert found == {"hooks", "commondir", "config.worktree"}
    assert (tmp_path / "index").exists()
    assert (tmp_path / "config").exists()
    assert all(watch.ends_command(f"/w/{name}") for name in found)


def test_a_work_tree_does_not_become_a_git_dir(tmp_path: Path) -> None:
    watch = SweepOnly([watched(tmp_path, "", "top")])
    (tmp_path / "HEAD").write_text("ref: refs/heads/x")
    assert watch.sweep() == []
    (tmp_path / "commondir").write_text("x")
    assert watch.sweep()
    assert watch.sweep() == []


@pytest.mark.posix  # symlinks; Wine makes none
def test_a_link_in_the_place_of_a_folder_is_moved_and_not_followed(tmp_path: Path) -> None:
    """The attack: the daemon renames a file of the user's outside of the workspace."""
    outside, workspace = tmp_path / "outside", tmp_path / "workspace"
    for folder in (outside, workspace, workspace / "a"):
        folder.mkdir()
    (outside / "mise.toml").write_text("the user's own")
    (workspace / "a" / "config").symlink_to(outside)
    held: list[str] = []

    @contextmanager
    def pin(path: str) -> Iterator[bool]:
        held.append(path)
        yield os.path.islink(path)
        held.remove(path)

    parts = ["a", "config", "mise.toml"]
    os.rename(workspace / "a" / "config" / "mise.toml", outside / "control")  # it is reached so
    os.rename(outside / "control", outside / "mise.toml")
    moved, to = KeptFolder(str(workspace), pin).take(parts)
    assert moved == ["a", "config"]
    assert os.listdir(outside) == ["mise.toml"]
    assert os.listdir(workspace / "a") == []
    assert (workspace.joinpath(*to)).is_symlink()
    assert held == []


def test_what_is_moved_aside_is_found_by_sandboxctl_kept(tmp_path: Path) -> None:
    for name in (".vscode", "a"):
        (tmp_path / name).mkdir()
    (tmp_path / ".vscode" / "tasks.json").write_text("1")
    (tmp_path / "a" / ".envrc").write_text("2")
    folder = KeptFolder(str(tmp_path), unpinned)
    folder.take([".vscode"])
    folder.take(["a", ".envrc"])
    found = {entry.origin: Path(entry.path) for entry in kept.entries(str(tmp_path))}
    assert (found[".vscode"] / "tasks.json").read_text() == "1"
    assert found["a/.envrc"].read_text() == "2"
    assert (tmp_path / KEPT_FOLDER / ".gitignore").read_text() == "*\n"
    with pytest.raises(FileNotFoundError):
        folder.take([".vscode"])


@pytest.mark.posix  # symlinks; Wine makes none
@pytest.mark.parametrize("made", ["link", "file"])
def test_what_a_command_put_in_the_place_of_the_kept_folder_is_not_used(
    tmp_path: Path, made: str
) -> None:
    """The attack: the daemon moves a file out of the workspace, where something reads it."""
    outside, workspace = tmp_path / "outside", tmp_path / "workspace"
    outside.mkdir()
    workspace.mkdir()
    if made == "link":
        (workspace / KEPT_FOLDER).symlink_to(outside)
    else:
        (workspace / KEPT_FOLDER).write_text("")
    (workspace / ".envrc").write_text("x")
    _, to = KeptFolder(str(workspace), unpinned).take([".envrc"])
    assert to[0].startswith(f"{KEPT_FOLDER}-")
    assert os.listdir(outside) == []
    assert [entry.origin for entry in kept.entries(str(workspace))] == [".envrc"]


@pytest.mark.posix
def test_a_prepared_gitignore_is_replaced_and_not_written_through(tmp_path: Path) -> None:
    outside, folder = tmp_path / "outside", tmp_path / "w" / KEPT_FOLDER
    outside.write_text("the user's own")
    folder.mkdir(parents=True)
    (folder / ".gitignore").symlink_to(outside)
    (tmp_path / "w" / "x").write_text("")
    KeptFolder(str(tmp_path / "w"), unpinned).take(["x"])
    assert outside.read_text() == "the user's own"
    assert (folder / ".gitignore").read_text() == "*\n"
    assert not (folder / ".gitignore").is_symlink()


@pytest.mark.posix
def test_without_a_kept_folder_it_still_goes(tmp_path: Path) -> None:
    (tmp_path / ".envrc").write_text("x")

    @contextmanager
    def pin(path: str) -> Iterator[bool]:
        if KEPT_FOLDER in path:
            raise OSError("the disk is full")
        yield False

    _, to = KeptFolder(str(tmp_path), pin).take([".envrc"])
    assert to[0].startswith(".envrc.sandboxd-")
    assert not (tmp_path / ".envrc").exists()
