"""The guard of a run: bounded work in each callback, threads for what takes long, fail closed."""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from sandboxd.linux.inotify import READ_BYTES, Inotify
from sandboxd.policy.plan import NetworkRule, SandboxSpec
from sandboxd.policy.protected import paths as protected_paths
from sandboxd.workspace_guard.git import index_file
from sandboxd.workspace_guard.git.git_dir import GitDir
from sandboxd.workspace_guard.guard import Guard
from sandboxd.workspace_guard.watch import absent_paths
from sandboxd.workspace_guard.watch.absent_paths import AbsentPathsWatch

PATIENCE_S = 30
_SMALLEST_EVENT = 16


def run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(work(), PATIENCE_S))


async def until(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110
        await asyncio.sleep(0.005)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    git = tmp_path / ".git"
    for name in ("objects", "refs/heads", "hooks", "logs"):
        (git / name).mkdir(parents=True)
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    (git / "config").write_text("")
    return tmp_path


def guard_of(workspace: Path) -> Guard:
    protected = protected_paths.for_workspace(str(workspace), ()).protected
    spec = SandboxSpec(base="minimal", network=NetworkRule("deny"))
    return Guard(replace(spec, protected=tuple(protected)))


def test_a_storm_of_events_is_read_in_bounded_pieces(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each callback reads once, and at most READ_BYTES of events."""
    counts: list[int] = []
    reads: list[int] = []
    real = Inotify.read

    def counted(self: Inotify) -> Iterator[Any]:
        events = list(real(self))
        counts.append(len(events))
        return iter(events)

    look = AbsentPathsWatch.appeared

    def looked(self: AbsentPathsWatch) -> list[str]:
        before = len(counts)
        found = look(self)
        reads.append(len(counts) - before)
        return found

    monkeypatch.setattr(Inotify, "read", counted)
    monkeypatch.setattr(AbsentPathsWatch, "appeared", looked)

    async def work() -> None:
        guard = guard_of(repository)
        ended: list[None] = []
        guard.start(lambda: ended.append(None))
        for number in range(3000):
            (repository / "a").rename(repository / "b") if number else (repository / "a").touch()
            (repository / "b").rename(repository / "a") if number else None
        (repository / ".envrc").write_text("x")
        await until(lambda: not (repository / ".envrc").exists())
        guard.stop()
        assert await guard.conclude()
        guard.close()
        assert ended == []

    run(work)
    assert sum(counts) > 6000
    assert len(counts) > 5
    assert max(counts) <= READ_BYTES // _SMALLEST_EVENT
    assert max(reads) <= 1


def test_a_large_index_is_read_and_judged_in_a_thread(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: set[int] = set()
    real = index_file.GitIndexFile._reasons

    def judged(self: index_file.GitIndexFile, now: os.stat_result) -> list[str]:
        threads.add(threading.get_ident())
        return real(self, now)

    monkeypatch.setattr(index_file.GitIndexFile, "_reasons", judged)

    async def work() -> None:
        guard = guard_of(repository)
        ended = asyncio.Event()
        guard.start(ended.set)
        (repository / ".git/index").write_bytes(b"DIRC" + b"\0" * (256 << 10))
        await ended.wait()
        guard.stop()
        found = dict(await guard.conclude())
        assert str(repository / ".git/index") in found
        guard.close()

    run(work)
    assert threads
    assert threading.get_ident() not in threads


@pytest.mark.parametrize("again", [True, False], ids=["made again", "left out"])
@pytest.mark.parametrize("name", ["objects", "refs"])
def test_git_data_that_was_deleted_is_reported_as_lost(
    repository: Path, name: str, again: bool
) -> None:
    """Once: from then on the new folder is the one that has to stay."""
    folder = repository / ".git" / name

    async def work() -> None:
        guard = guard_of(repository)
        shutil.rmtree(folder)
        if again:
            folder.mkdir()
        assert str(folder) in dict(await guard.conclude())
        assert folder.is_dir()
        (said,) = guard.warnings(killed=False)
        assert f"{folder} could not be put right: what it held was deleted" in said
        await guard.conclude()
        assert guard.warnings(killed=False) == []
        guard.close()

    run(work)


def test_a_callback_that_fails_ends_the_command(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: AbsentPathsWatch) -> list[str]:
        raise RuntimeError("a mistake of ours")

    monkeypatch.setattr(absent_paths.AbsentPathsWatch, "appeared", broken)

    async def work() -> None:
        guard = guard_of(repository)
        ended = asyncio.Event()
        guard.start(ended.set)
        (repository / ".envrc").write_text("x")
        await ended.wait()
        (said,) = guard.warnings(killed=True)
        assert "because its protected paths could not be watched any more" in said
        guard.close()

    run(work)


@pytest.mark.parametrize("by", ["event", "clock"])
def test_a_look_for_moves_that_fails_ends_the_command(
    repository: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    def broken(self: Guard) -> bool:
        raise OSError("a mistake of ours")

    monkeypatch.setattr(Guard, "notice_move", broken)
    if by == "event":
        monkeypatch.setattr(Guard, "processes_began", lambda self: None)

    async def work() -> None:
        guard = guard_of(repository)
        ended = asyncio.Event()
        guard.start(ended.set)
        if by == "event":
            (repository / ".envrc").write_text("x")
        await ended.wait()
        guard.close()

    run(work)


def test_a_thread_that_fails_ends_the_command(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: AbsentPathsWatch) -> list[str]:
        raise RuntimeError("a mistake of ours")

    monkeypatch.setattr(absent_paths.AbsentPathsWatch, "judge_unread", broken)

    async def work() -> None:
        guard = guard_of(repository)
        ended = asyncio.Event()
        guard.start(ended.set)
        (repository / ".git/index").write_bytes(b"DIRC" + b"\0" * (256 << 10))
        await ended.wait()
        guard.close()

    run(work)


def test_a_judge_that_fails_in_the_end_is_told_and_the_rest_is_undone(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: GitDir, *, finished: bool) -> list[Any]:
        raise RuntimeError("a mistake of ours")

    monkeypatch.setattr(GitDir, "look", broken)
    protected = protected_paths.for_workspace(str(repository), ()).protected
    with AbsentPathsWatch(protected) as watch:
        (repository / ".envrc").write_text("x")
        moved = {one.path: one.moved_to for one in watch.sweep()}
    assert moved[str(repository / ".git")] is None
    assert moved[str(repository / ".envrc")] is not None
    assert not (repository / ".envrc").exists()
