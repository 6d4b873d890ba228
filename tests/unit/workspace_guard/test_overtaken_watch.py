"""A look that is under way when a command ends: what it undid is told with that command."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from support.git_attacks import make_repository

from sandboxd.policy.protected.nested_git import Repositories
from sandboxd.workspace_guard import overtaken_watch
from sandboxd.workspace_guard.overtaken_watch import Found, OvertakenWatch

pytestmark = [pytest.mark.posix, pytest.mark.requires("git")]

PATIENCE_S = 60.0


@pytest.mark.parametrize("end", [OvertakenWatch.settle, OvertakenWatch.close])
def test_what_a_look_under_way_undid_is_told(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, end: Callable[[OvertakenWatch], Any]
) -> None:
    undone, may_return = threading.Event(), threading.Event()
    undo = overtaken_watch.undo_overtaken

    def slow_undo(*args: Any) -> Any:
        moved = undo(*args)
        if moved:
            undone.set()
            assert may_return.wait(PATIENCE_S)
        return moved

    monkeypatch.setattr(overtaken_watch, "undo_overtaken", slow_undo)
    repository = make_repository(workspace)
    folder = repository / "folder"
    folder.mkdir()
    told: list[Found] = []

    async def tell(watch: OvertakenWatch, ended: anyio.Event) -> None:
        told.append(await end(watch))
        ended.set()

    async def run() -> None:
        nested = Repositories((str(repository),), (str(repository), str(folder)))
        watch = OvertakenWatch(nested, ())
        watch.begin()
        make_repository(folder)
        hook = folder / ".git/hooks/post-checkout"
        hook.write_text("#!/bin/sh\n")
        hook.chmod(0o755)
        assert await anyio.to_thread.run_sync(undone.wait, PATIENCE_S)
        watch.end()
        async with anyio.create_task_group() as tasks:
            ended = anyio.Event()
            tasks.start_soon(tell, watch, ended)
            with anyio.move_on_after(1):  # it waits for the look: nothing ends this earlier
                await ended.wait()
            may_return.set()
        await watch.close()

    anyio.run(run)
    assert [list(found) for found in told] == [[str(folder / ".git")]]


def test_the_next_command_is_told_nothing_of_it() -> None:
    """Each is told once."""
    watch = OvertakenWatch(Repositories(), ())
    watch._found = {"/w/folder/.git": None}

    async def run() -> list[Found]:
        return [await watch.settle(), await watch.settle()]

    assert anyio.run(run) == [{"/w/folder/.git": None}, {}]
