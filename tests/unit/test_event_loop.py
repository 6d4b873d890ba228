"""Begun: a coroutine that a callback starts and a task finishes."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from sandboxd import event_loop
from sandboxd.event_loop import Begun, Deadline, OwnedTasks, WakeUp, enter_task


def run(work: Callable[[], Awaitable[None]]) -> None:
    """On asyncio's loop and on the daemon's."""
    anyio.run(work, backend="asyncio")
    anyio.run(work, backend="asyncio", backend_options={"loop_factory": event_loop.new_loop})


async def begun_by_callback(make: Callable[[], Any]) -> Begun[Any]:
    """As the reader of a connection does: where no task runs."""
    made: event_loop.Future[Begun[Any]] = event_loop.create_future()
    event_loop.call_soon(lambda: made.set_result(Begun(make())))
    return await made


def not_expected(error: BaseException) -> None:
    pytest.fail(str(error))


async def answer() -> int:
    return 7


async def fail() -> int:
    raise ValueError("as expected")


def test_what_never_waits_is_done_at_once() -> None:
    async def work() -> None:
        one = await begun_by_callback(answer)
        assert one.done
        assert one.result() == 7
        assert await one == 7

    run(work)


def test_an_error_waits_for_the_task() -> None:
    async def work() -> None:
        one = await begun_by_callback(fail)
        assert one.done
        with pytest.raises(ValueError, match="as expected"):
            await one

    run(work)


def test_a_task_runs_what_needs_one() -> None:
    """Timeouts and cancel scopes belong to a task; a callback has none."""
    seen: list[str] = []

    async def part() -> str:
        seen.append("at once")
        await enter_task()
        with anyio.move_on_after(0):
            await anyio.sleep_forever()
        return "in the task"

    async def work() -> None:
        seen.clear()
        one = await begun_by_callback(part)
        assert seen == ["at once"]
        assert not one.done
        assert await one == "in the task"

    run(work)


@pytest.mark.parametrize("already", [True, False])
def test_a_wait_that_began_in_a_callback_ends_in_a_task(already: bool) -> None:
    async def work() -> None:
        waited_for: event_loop.Future[int] = event_loop.create_future()

        async def part() -> int:
            first = await waited_for
            await anyio.lowlevel.checkpoint()
            return first + 1

        one = await begun_by_callback(part)
        if already:
            waited_for.set_result(1)
            await anyio.lowlevel.checkpoint()
        else:
            event_loop.call_later(0.001, waited_for.set_result, 1)
        assert await one == 2

    run(work)


def test_cancelling_the_task_reaches_the_coroutine() -> None:
    ended: list[str] = []

    async def work() -> None:
        ended.clear()

        async def part() -> None:
            try:
                await event_loop.create_future()
            finally:
                ended.append("cancelled")
                with anyio.CancelScope(shield=True):
                    await anyio.lowlevel.checkpoint()
                ended.append("cleaned up")

        one = await begun_by_callback(part)
        with anyio.move_on_after(0.001) as scope:
            await one
        assert scope.cancelled_caught
        assert ended == ["cancelled", "cleaned up"]

    run(work)


def test_a_task_that_began_it_is_not_its_task() -> None:
    """A scope that one task entered must not be left by another."""

    async def part() -> str:
        await enter_task()
        with anyio.CancelScope():
            await anyio.lowlevel.checkpoint()
        return "done"

    async def work() -> None:
        results: list[str] = []

        async def finish(begun: Begun[str]) -> None:
            results.append(await begun)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(finish, Begun(part()))
        assert results == ["done"]

    run(work)


def test_what_waits_for_a_wake_up_goes_on_inside_it_without_a_task() -> None:
    async def work() -> None:
        seen: list[object] = []
        wake_up, tasks = WakeUp(), OwnedTasks(not_expected)

        async def part() -> None:
            await wake_up
            seen.append(asyncio.current_task())

        event_loop.call_soon(tasks.start, part())
        event_loop.call_later(0.001, wake_up.set)
        event_loop.call_later(0.001, lambda: seen.append("after it"))
        await anyio.sleep(0.05)
        assert seen == [None, "after it"]

    run(work)


def test_a_task_runs_the_rest_of_what_was_woken_and_needs_one() -> None:
    async def work() -> None:
        seen: list[str] = []
        wake_up, tasks = WakeUp(), OwnedTasks(not_expected)

        async def inner() -> None:
            await wake_up
            await enter_task()
            with anyio.move_on_after(0):
                await anyio.sleep_forever()
            seen.append("in the task")

        async def part() -> None:
            await Begun(inner())
            seen.append("after it")

        event_loop.call_soon(tasks.start, part())
        event_loop.call_later(0.001, wake_up.set)
        await anyio.sleep(0.01)
        await tasks.end(30)
        assert seen == ["in the task", "after it"]

    run(work)


def test_a_wake_up_reaches_a_task() -> None:
    async def work() -> None:
        wake_up = WakeUp()
        event_loop.call_later(0.001, wake_up.set)
        with anyio.fail_after(10):
            await wake_up
            await wake_up  # it stays set

    run(work)


def test_a_deadline_ends_the_wait_of_what_has_no_task() -> None:
    async def work() -> None:
        seen: list[str] = []
        wake_up, tasks = WakeUp(), OwnedTasks(not_expected)

        async def inner() -> None:
            with Deadline(0.001):
                await WakeUp()
            seen.append("late")
            with Deadline(30):
                await wake_up
            seen.append("in time")

        async def part() -> None:
            begun = Begun(inner())
            assert not begun.done
            await begun

        event_loop.call_soon(tasks.start, part())
        event_loop.call_later(0.02, wake_up.set)
        await anyio.sleep(0.05)
        assert seen == ["late", "in time"]

    run(work)


def test_a_deadline_that_was_set_without_a_task_holds_in_it() -> None:
    async def work() -> None:
        seen: list[str] = []
        tasks = OwnedTasks(not_expected)

        async def part() -> None:
            with Deadline(0.01):
                await enter_task()
                await anyio.sleep_forever()
            seen.append("late")
            await anyio.lowlevel.checkpoint()  # nothing of the cancellation is left
            seen.append("done")

        event_loop.call_soon(tasks.start, part())
        with anyio.fail_after(10):
            await anyio.sleep(0.02)
            await tasks.end(30)
        assert seen == ["late", "done"]

    run(work)


def test_the_end_waits_for_what_has_no_task() -> None:
    async def work() -> None:
        seen: list[str] = []
        wake_up, tasks = WakeUp(), OwnedTasks(not_expected)

        async def part() -> None:
            await wake_up
            seen.append("woken")

        event_loop.call_soon(tasks.start, part())
        event_loop.call_later(0.01, wake_up.set)
        await anyio.lowlevel.checkpoint()
        with anyio.fail_after(10):
            await tasks.end(30)
        assert seen == ["woken"]

    run(work)


def test_what_is_never_woken_is_cancelled_at_the_end() -> None:
    async def work() -> None:
        tasks = OwnedTasks(not_expected)

        async def part() -> None:
            await WakeUp()

        event_loop.call_soon(tasks.start, part())
        await anyio.lowlevel.checkpoint()
        with anyio.fail_after(10):
            await tasks.end(0.01)

    run(work)


def test_the_daemons_loop_serves_readers_timers_threads_and_tasks() -> None:
    async def work() -> None:
        reader, writer = socket.socketpair()
        read, late = anyio.Event(), anyio.Event()
        with reader, writer, anyio.fail_after(10):
            event_loop.add_reader(reader, read.set)
            event_loop.call_later(0.01, writer.send, b"x")
            await read.wait()
            event_loop.remove_reader(reader)
            event_loop.running_loop().call_later(0.01, late.set)
            await late.wait()
            assert await event_loop.run_in_thread(int, "7") == 7

    run(work)


@pytest.mark.anyio
async def test_a_number_that_is_used_again_is_read_again() -> None:
    """Its first owner closed it and did not remove it."""
    if sys.platform != "linux":
        pytest.skip("elsewhere asyncio's own readers are used")
    old, new = anyio.Event(), anyio.Event()
    first, second = socket.socketpair()
    event_loop.add_reader(first, old.set)
    number = first.fileno()
    first.close()
    second.close()
    reader, writer = socket.socketpair()  # of the lowest numbers that are free
    with reader, writer:
        assert number in (reader.fileno(), writer.fileno())
        if number == writer.fileno():
            reader, writer = writer, reader
        event_loop.add_reader(number, new.set)
        writer.send(b"x")
        with anyio.fail_after(10):
            await new.wait()
        event_loop.remove_reader(number)
    assert not old.is_set()


@pytest.mark.anyio
async def test_a_reader_that_another_one_removed_is_not_called() -> None:
    called: list[int] = []
    first = anyio.Event()
    pairs = [socket.socketpair() for _ in range(2)]

    def take(number: int) -> None:
        called.append(number)
        first.set()
        for reader, _ in pairs:
            event_loop.remove_reader(reader)

    for number, (reader, writer) in enumerate(pairs):
        writer.send(b"x")
        event_loop.add_reader(reader, take, number)
    with anyio.fail_after(10):
        await first.wait()
    for _ in range(5):
        await anyio.lowlevel.checkpoint()
    for pair in pairs:
        for end in pair:
            end.close()
    assert len(called) == 1


@pytest.mark.anyio
async def test_a_reader_that_fails_does_not_stop_others() -> None:
    failed: list[str] = []
    told, called = anyio.Event(), anyio.Event()

    def note(loop: object, context: dict[str, Any]) -> None:
        failed.append(str(context["exception"]))
        told.set()

    event_loop.running_loop().set_exception_handler(note)
    (bad, bad_end), (good, good_end) = socket.socketpair(), socket.socketpair()

    def fail() -> None:
        event_loop.remove_reader(bad)
        raise ValueError("broken")

    event_loop.add_reader(bad, fail)
    event_loop.add_reader(good, called.set)
    bad_end.send(b"x")
    good_end.send(b"x")
    with anyio.fail_after(10):
        await called.wait()
        await told.wait()
    event_loop.remove_reader(good)
    for end in (bad, bad_end, good, good_end):
        end.close()
    assert failed == ["broken"]
