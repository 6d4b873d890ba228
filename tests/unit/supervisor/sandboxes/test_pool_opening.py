"""Sandboxes are opened a bounded number at a time, and who is cancelled in the queue opens none."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from msgspec.structs import replace

from sandboxd.backends.interface import Capabilities
from sandboxd.config.config import Pool
from sandboxd.event_loop import Begun, create_task, wait
from sandboxd.policy.plan import NetworkRule, SandboxSpec
from sandboxd.supervisor.background import Background
from sandboxd.supervisor.hanging_mount_checks import MountChecks
from sandboxd.supervisor.sandboxes import pool as pool_module
from sandboxd.supervisor.sandboxes.pool import MOST_OPENING, MOST_OPENING_REMOTE, WarmPool
from sandboxd_proto.errors import SandboxUnavailable, ShuttingDown

pytestmark = pytest.mark.anyio


class SlowBackend:
    """Counts what is opened at once; nothing is ready before `go`."""

    name = "slow"
    capabilities = Capabilities()

    def __init__(self) -> None:
        self.go = anyio.Event()
        self.now = self.most = self.all = self.failures = self.closed = 0

    @asynccontextmanager
    async def open(self, spec: SandboxSpec) -> AsyncIterator[object]:
        self.now += 1
        self.all += 1
        self.most = max(self.most, self.now)
        try:
            await self.go.wait()
            await anyio.lowlevel.checkpoint()
            if self.failures:
                self.failures -= 1
                raise SandboxUnavailable("the host changed")
        finally:
            self.now -= 1
        yield object()
        self.closed += 1


def spec() -> SandboxSpec:
    return SandboxSpec(base="minimal", grants=(), network=NetworkRule("deny"))


async def wait_for(condition: Any) -> None:
    with anyio.fail_after(10):
        while not condition():  # noqa: ASYNC110
            await anyio.sleep(0.001)


async def test_the_rest_queues() -> None:
    backend: Any = SlowBackend()
    taken: list[object] = []
    async with anyio.create_task_group() as tasks:
        pool = WarmPool(Pool(enabled=False), Background(tasks), MountChecks())

        async def take() -> None:
            taken.append(await pool.take(backend, spec()))

        for _ in range(5 * MOST_OPENING):
            tasks.start_soon(take)
        await wait_for(lambda: backend.now == MOST_OPENING)
        await anyio.sleep(0.05)
        assert backend.all == MOST_OPENING
        backend.go.set()
        await wait_for(lambda: len(taken) == 5 * MOST_OPENING)
    assert backend.most == MOST_OPENING


async def test_who_is_cancelled_in_the_queue_opens_none() -> None:
    backend: Any = SlowBackend()
    async with anyio.create_task_group() as tasks:
        pool = WarmPool(Pool(enabled=False), Background(tasks), MountChecks())
        async with anyio.create_task_group() as waiting:
            for _ in range(5 * MOST_OPENING):
                waiting.start_soon(pool.take, backend, spec())
            await wait_for(lambda: backend.now == MOST_OPENING)
            waiting.cancel_scope.cancel()
        backend.go.set()
        await wait_for(lambda: backend.now == 0)
        await anyio.sleep(0.05)
    assert backend.all == MOST_OPENING


async def test_who_is_cancelled_just_before_the_sandbox_is_up_leaves_none_open(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The task that waits is told, and has not run since."""
    backend: Any = SlowBackend()
    async with anyio.create_task_group() as tasks:
        pool = WarmPool(Pool(enabled=False), Background(tasks), MountChecks())
        taking = create_task(pool.take(backend, spec()))
        await wait_for(lambda: backend.now == 1)
        hand_over = pool._hand_over

        def cancelled_first(*args: Any) -> None:
            taking.cancel()
            hand_over(*args)

        monkeypatch.setattr(pool, "_hand_over", cancelled_first)
        backend.go.set()
        await wait({taking})
        assert taking.cancelled()
        await wait_for(lambda: backend.closed == 1)
    assert not caplog.records


@pytest.mark.parametrize("failures", [1, 2])
async def test_an_attempt_that_began_before_is_no_answer(failures: int) -> None:
    """The host may have changed since; an attempt of one's own is the answer."""
    backend: Any = SlowBackend()
    backend.failures = failures
    async with anyio.create_task_group() as tasks:
        pool = WarmPool(Pool(enabled=False), Background(tasks), MountChecks())
        async with anyio.create_task_group() as waiting:
            waiting.start_soon(pool.take, backend, spec())
            await wait_for(lambda: backend.now == 1)
            waiting.cancel_scope.cancel()
        asked = Begun(pool.take(backend, spec()))
        assert backend.all == 1  # which may be for this one
        backend.go.set()
        with anyio.fail_after(10):
            if failures == 1:
                await asked
            else:
                with pytest.raises(SandboxUnavailable):
                    await asked
    assert backend.all == 2


async def test_who_waits_for_few_goes_before_who_waits_for_many() -> None:
    """Also on another shelf: a flood of one client does not hold up the others."""
    backend: Any = SlowBackend()
    order: list[str] = []
    async with anyio.create_task_group() as tasks:
        pool = WarmPool(Pool(enabled=False), Background(tasks), MountChecks())

        async def take(owner: str, wanted: SandboxSpec) -> None:
            await pool.take(backend, wanted, owner)
            order.append(owner)

        for _ in range(5 * MOST_OPENING):
            tasks.start_soon(take, "flood", spec())
        await wait_for(lambda: backend.now == MOST_OPENING)
        tasks.start_soon(take, "same plan", spec())
        tasks.start_soon(take, "other plan", replace(spec(), tmp_bytes=4096))
        await anyio.sleep(0.05)
        backend.go.set()
        await wait_for(lambda: len(order) == 5 * MOST_OPENING + 2)
    assert order.index("same plan") < MOST_OPENING
    assert order.index("other plan") < 3 * MOST_OPENING


async def test_a_sweep_between_asking_and_waiting_loses_nobody() -> None:
    """A request asks where it was read; what waits is a task, which starts later."""
    backend: Any = SlowBackend()
    backend.go.set()
    async with anyio.create_task_group() as tasks:
        pool = WarmPool(Pool(), Background(tasks), MountChecks())
        asked = Begun(pool.take(backend, spec()))
        assert not asked.done
        pool._sweep()
        with anyio.fail_after(10):
            await asked


async def test_sandboxes_of_another_machine_are_not_held_back() -> None:
    backend: Any = SlowBackend()
    backend.capabilities = Capabilities(remote=True)
    wanted = 4 * MOST_OPENING
    assert wanted < MOST_OPENING_REMOTE
    async with anyio.create_task_group() as tasks:
        pool = WarmPool(Pool(enabled=False), Background(tasks), MountChecks())
        for _ in range(wanted):
            tasks.start_soon(pool.take, backend, spec())
        await wait_for(lambda: backend.now == wanted)
        backend.go.set()


async def test_closing_cancels_what_does_not_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "OPENS_GRACE_S", 0.05)
    backend: Any = SlowBackend()
    async with anyio.create_task_group() as tasks:
        pool = WarmPool(Pool(enabled=False), Background(tasks), MountChecks())

        async def take() -> None:
            with pytest.raises(ShuttingDown):
                await pool.take(backend, spec())

        tasks.start_soon(take)
        await wait_for(lambda: backend.now == 1)
        await pool.close()
