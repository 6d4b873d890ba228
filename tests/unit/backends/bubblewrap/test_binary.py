"""The program is asked once for its options, however many requests want to know."""

from __future__ import annotations

import sys
from pathlib import Path

import anyio
import pytest

if sys.platform != "linux":
    pytest.skip("bubblewrap is Linux's", allow_module_level=True)

from sandboxd.backends.bubblewrap import binary


def test_requests_that_come_at_once_ask_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = tmp_path / "asked"
    program = tmp_path / "bwrap"
    program.write_text(f"#!/bin/sh\necho $1 >> {asked}\nsleep 0.2\necho bubblewrap 1.2.3\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    found: list[binary.Bwrap | None] = []

    async def find() -> None:
        found.append(await binary.find())

    async def work() -> None:
        async with anyio.create_task_group() as tasks:
            for _ in range(10):
                tasks.start_soon(find)

    anyio.run(work)
    assert [one.version for one in found if one is not None] == ["1.2.3"] * 10
    assert asked.read_text().split() == ["--help", "--version"]
