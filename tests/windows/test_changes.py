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
from sandboxd.windows.renaming import rename_below
from sandboxd.workspace_guard.sweep_only import SweepOnly


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
    assert rename_below(str(workspace), parts, ".x", pin) == ["a", "config"]
    assert os.listdir(outside) == ["mise.toml"]
    assert os.listdir(workspace / "a") == ["config.x"]
    assert held == []
