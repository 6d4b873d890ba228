"""A file of git that a running command removes between the look at it and the reading of it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from sandboxd.workspace_guard import snapshot
from sandboxd.workspace_guard.dirfd import open_root, read_file
from sandboxd.workspace_guard.git import head as git_head
from sandboxd.workspace_guard.git import index_file
from sandboxd.workspace_guard.git.head import GitHead
from sandboxd.workspace_guard.git.index_file import GitIndexFile

OID = "1" * 40


@pytest.fixture
def git_dir(tmp_path: Path) -> Path:
    (tmp_path / "refs/heads").mkdir(parents=True)
    (tmp_path / "objects").mkdir()
    (tmp_path / "HEAD").write_text("ref: refs/heads/main\n")
    return tmp_path


@pytest.fixture
def folder(git_dir: Path) -> Iterator[int]:
    fd = open_root(str(git_dir))
    yield fd
    os.close(fd)


def remove_before_reading(monkeypatch: pytest.MonkeyPatch, module: ModuleType, gone: str) -> None:
    def remove_and_read(at: int, name: str, most: int) -> bytes | None:
        if name == gone:
            os.unlink(name, dir_fd=at)
        return read_file(at, name, most)

    monkeypatch.setattr(module, "read_file", remove_and_read)


def test_branch_that_is_packed(git_dir: Path, folder: int, monkeypatch: pytest.MonkeyPatch) -> None:
    head = GitHead(folder, str(git_dir))
    (git_dir / "refs/heads/main").write_text(OID + "\n")
    remove_before_reading(monkeypatch, git_head, "main")
    assert head.judge() == []
    head.close()


def test_branch_that_cannot_be_read_is_undone(git_dir: Path, folder: int) -> None:
    head = GitHead(folder, str(git_dir))
    os.mkfifo(git_dir / "refs/heads/main")
    assert [one.path for one in head.judge()] == [str(git_dir / "refs/heads/main")]
    head.close()


def test_index_that_is_removed(git_dir: Path, folder: int, monkeypatch: pytest.MonkeyPatch) -> None:
    index = GitIndexFile(folder, str(git_dir), frozenset())
    (git_dir / "index").write_bytes(b"no index")
    assert index.judge(finished=False), "the control: it is harmful where it can be read"
    remove_before_reading(monkeypatch, index_file, "index")
    assert index.judge(finished=False) == []


def test_snapshot_of_a_folder_that_shrinks(
    git_dir: Path, folder: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = git_dir / "rebase-merge"
    state.mkdir()
    (state / "done").write_text("pick\n")
    listed = snapshot._names

    def list_with_one_more(at: int, most: int) -> list[str] | None:
        return [*(listed(at, most) or ()), "removed"]

    monkeypatch.setattr(snapshot, "_names", list_with_one_more)
    kept = snapshot.keep(folder, "rebase-merge", snapshot.SnapshotBudget())
    assert list(kept.children) == ["done"]
