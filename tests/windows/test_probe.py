"""The probe: one at a time, success kept for good, failure never, counted by its attempts."""

from __future__ import annotations

import itertools

import anyio
import anyio.abc
import anyio.lowlevel
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


class Machine:
    """Asks, ends and cancels in any order, and holds the probe to its rules after each step."""

    def __init__(self, tasks: anyio.abc.TaskGroup) -> None:
        self.tasks = tasks
        self.probe = CachedProbe(self.attempt)
        self.spawned = self.running = self.succeeded = 0
        self.results: list[Probe | Exception] = []
        self.ended = anyio.Event()
        self.callers: list[anyio.CancelScope] = []
        self.answers: list[Probe] = []

    async def attempt(self) -> Probe:
        assert not self.succeeded, "tried again after a success"
        self.spawned += 1
        self.running += 1
        assert self.running == 1, "two attempts at once"
        try:
            await self.ended.wait()
            result = self.results.pop()
        finally:
            self.running -= 1
            self.ended = anyio.Event()
        if isinstance(result, Exception):
            raise result
        self.succeeded += result == UP
        return result

    async def ask(self) -> None:
        with anyio.CancelScope() as scope:
            self.callers.append(scope)
            self.answers.append(await self.probe())
        self.callers.remove(scope)

    def act(self, action: str) -> None:
        before = self.spawned
        if action == "ask":
            self.tasks.start_soon(self.ask)
        elif action == "cancel" and self.callers:
            self.callers[0].cancel()  # the one whose attempt it is
        elif action in ("up", "down", "crash") and self.running:
            end: dict[str, Probe | Exception] = {"up": UP, "down": DOWN, "crash": OSError("no")}
            self.results.append(end[action])
            self.ended.set()
        assert self.spawned == before

    def check(self, action: str, asked: int, spawned: int) -> None:
        """`asked`, `spawned`: how many callers waited and attempts were made before the action."""
        made = self.spawned - spawned
        if self.succeeded:
            assert (made, self.callers) == (0, [])
            assert isinstance(self.answers[-1], Available)
        elif action == "ask":
            assert made == (1 if asked == 0 else 0), "a failure is not kept, and callers share"
        elif action == "cancel":
            assert made == (1 if asked > 1 else 0), "the next caller tries itself"
        else:
            assert made == 0
            assert not asked or self.callers == [], "all callers have the answer"


@pytest.mark.parametrize("first", ["ask", "ask ask"])
def test_every_order_of_callers_and_endings_counts_its_spawns(first: str) -> None:
    actions = ("ask", "up", "down", "crash", "cancel")

    async def work(order: tuple[str, ...]) -> None:
        async with anyio.create_task_group() as tasks:
            machine = Machine(tasks)
            for action in order:
                asked, spawned = len(machine.callers), machine.spawned
                machine.act(action)
                for _ in range(20):  # more than any task needs until it waits again
                    await anyio.lowlevel.checkpoint()
                machine.check(action, asked, spawned)
            tasks.cancel_scope.cancel()

    async def all_orders() -> None:
        for rest in itertools.product(actions, repeat=4):
            await work((*first.split(), *rest))

    run(all_orders)
