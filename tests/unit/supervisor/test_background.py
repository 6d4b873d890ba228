"""Work of the daemon's whole life goes on after an error."""

from __future__ import annotations

import errno

import anyio
import pytest

from sandboxd.supervisor import background


def test_it_is_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "AGAIN_AFTER_S", 0.0)
    starts = []

    async def work(name: str) -> None:
        starts.append(name)
        if len(starts) < 3:
            raise OSError(errno.EMFILE, "no more descriptors")

    async def main() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(background.keep_running, work, "sync")

    anyio.run(main)
    assert starts == ["sync"] * 3
