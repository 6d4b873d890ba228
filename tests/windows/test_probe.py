"""The probe: one at a time, success kept for good, failure never, counted by its attempts."""

from __future__ import annotations

import anyio
import pytest

from sandboxd.backends.appcontainer.probe import CachedProbe
from sandboxd.backends.interface import Available, Probe, Unavailable

UP = Available(("AppContainer",))
DOWN = Unavailable("no", "none")


class Attempts:
    """Each attempt waits until it is let go, and answers what comes next."""

    def __init__(self, *answers: Probe | Exception) -> None:
        self.answers = list(answers)
        self.count = 0
        self.go = anyio.Event()

    async def __call__(self) -> Probe:
        self.count += 1
        answer = self.answers.pop(0)
        await self.go.wait()
        if isinstance(answer, Exception):
            raise answer
        return answer


def run(work: object) -> None:
    anyio.run(work)  # type: ignore[arg-type]


def test_callers_at_once_share_one_attempt() -> None:
    async def work() -> None:
        attempts = Attempts(UP)
        probe = CachedProbe(attempts)
        found: list[Probe] = []

        async def ask() -> None:
            found.append(await probe())

        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(ask)
            await anyio.wait_all_tasks_blocked()
            attempts.go.set()
        assert found == [UP] * 20
        assert attempts.count == 1

    run(work)


def test_a_success_is_kept_and_a_failure_is_not() -> None:
    async def work() -> None:
        attempts = Attempts(DOWN, DOWN, UP)
        attempts.go.set()
        probe = CachedProbe(attempts)
        assert [await probe() for _ in range(6)] == [DOWN, DOWN, UP, UP, UP, UP]
        assert attempts.count == 3

    run(work)


def test_callers_during_a_failure_share_it_and_the_next_tries_again() -> None:
    async def work() -> None:
        attempts = Attempts(DOWN, UP)
        probe = CachedProbe(attempts)
        found: list[Probe] = []

        async def ask() -> None:
            found.append(await probe())

        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(ask)
            await anyio.wait_all_tasks_blocked()
            attempts.go.set()
        assert found == [DOWN] * 5
        assert attempts.count == 1
        assert await probe() == UP
        assert attempts.count == 2

    run(work)


def test_a_probe_that_crashes_is_a_failure() -> None:
    async def work() -> None:
        attempts = Attempts(RuntimeError("boom"), UP)
        attempts.go.set()
        probe = CachedProbe(attempts)
        first = await probe()
        assert isinstance(first, Unavailable)
        assert "boom" in first.reason
        assert await probe() == UP

    run(work)


def test_a_cancelled_leader_leaves_its_followers_to_try_themselves() -> None:
    async def work() -> None:
        attempts = Attempts(DOWN, UP)
        probe = CachedProbe(attempts)
        found: list[Probe] = []

        async def ask() -> None:
            found.append(await probe())

        async with anyio.create_task_group() as tasks:
            leader = anyio.CancelScope()
            tasks.start_soon(lead, leader, probe)
            await anyio.wait_all_tasks_blocked()
            for _ in range(3):
                tasks.start_soon(ask)
            await anyio.wait_all_tasks_blocked()
            leader.cancel()
            await anyio.wait_all_tasks_blocked()
            attempts.go.set()
        assert found == [UP] * 3
        assert attempts.count == 2

    async def lead(scope: anyio.CancelScope, probe: CachedProbe) -> None:
        with scope:
            await probe()

    run(work)


@pytest.mark.parametrize("late", [DOWN, RuntimeError("late")])
def test_a_late_failure_never_takes_a_success_back(late: Probe | Exception) -> None:
    async def work() -> None:
        probe: CachedProbe

        async def attempt() -> Probe:
            probe._success = UP  # another path has succeeded meanwhile
            if isinstance(late, Exception):
                raise late
            return late

        probe = CachedProbe(attempt)
        assert await probe() == UP
        assert await probe() == UP

    run(work)
