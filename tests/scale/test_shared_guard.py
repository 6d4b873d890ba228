"""Sandboxes of one workspace share the watch on its protected paths, and each is told."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from sandboxd.policy.plan import NetworkRule, Protected, SandboxSpec
from sandboxd.workspace_guard.shared_guard import SharedGuards


def open_inotify() -> int:
    links = (entry.readlink() for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink())
    return sum(1 for link in links if "inotify" in str(link))


@pytest.fixture
def spec(workspace: Path) -> SandboxSpec:
    missing = Protected(
        path=str(workspace / "hooks"), root=str(workspace), is_dir=False, present=False,
        rule="absent",
    )  # fmt: skip
    return SandboxSpec(base="host", network=NetworkRule("deny"), protected=(missing,))


def test_a_hundred_members_use_one_watch_and_all_are_told(
    spec: SandboxSpec, workspace: Path
) -> None:
    told: list[int] = []

    async def live() -> None:
        guards = SharedGuards()
        before = open_inotify()
        members = [
            guards.join(spec, lambda number=number: told.append(number)) for number in range(100)
        ]
        assert open_inotify() == before + 1
        members[0].mute()
        (workspace / "hooks").write_text("run me")
        with anyio.fail_after(20):
            while len(told) < 99:  # noqa: ASYNC110 - told by callbacks
                await anyio.sleep(0.01)
        first = await members[0].conclude()
        assert [path for path, _ in first] == [str(workspace / "hooks")]
        assert not (workspace / "hooks").exists()
        for member in members[1:]:
            await member.conclude()
        assert open_inotify() == before

    anyio.run(live)
    assert sorted(told) == list(range(1, 100))
