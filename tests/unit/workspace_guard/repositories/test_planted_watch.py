"""A look at the user's folders that is under way when the command ends."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import pytest

from sandboxd.policy.protected import nested_git
from sandboxd.workspace_guard.repositories import planted_watch
from sandboxd.workspace_guard.repositories.planted_watch import Found, PlantedWatch


def make_repository_with_a_hook(folder: Path) -> None:
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    hook = folder / ".git/hooks/post-checkout"
    hook.write_text("#!/bin/sh\n")
    hook.chmod(0o755)


@pytest.mark.parametrize("report", [PlantedWatch.settle, PlantedWatch.close])
def test_what_a_look_undoes_is_reported_by_the_command_that_it_met(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    report: Callable[[PlantedWatch], Awaitable[Found]],
) -> None:
    (tmp_path / "src").mkdir()
    nested = nested_git.find(str(tmp_path))
    looked, go_on = threading.Event(), threading.Event()
    undo = PlantedWatch._undo

    def undo_slowly(self: PlantedWatch, finished: bool) -> Found:
        found = undo(self, finished)
        if not looked.is_set():
            looked.set()
            go_on.wait(60)
        return found

    monkeypatch.setattr(PlantedWatch, "_undo", undo_slowly)
    monkeypatch.setattr(planted_watch, "POLL_S", 0.001)

    async def main() -> Found:
        watch = PlantedWatch(nested, ())
        watch.begin()
        make_repository_with_a_hook(tmp_path / "src")
        await anyio.to_thread.run_sync(looked.wait)
        watch.end()
        threading.Timer(0.2, go_on.set).start()
        return await report(watch)

    assert list(anyio.run(main)) == [str(tmp_path / "src/.git")]
