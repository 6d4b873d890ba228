"""Deadline, OwnedTasks and Timers: lighter than what anyio and asyncio have, for every command."""

from __future__ import annotations

import sys
import time

import anyio
import anyio.lowlevel
import pytest

from sandboxd import event_loop, timers
from sandboxd.event_loop import Deadline, OwnedTasks

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_a_block_is_left_at_its_deadline() -> None:
    with Deadline(0.01):
        await anyio.sleep(30)
        pytest.fail("the deadline did not end the wait")
    await anyio.lowlevel.checkpoint()  # nothing of the cancellation is left


async def test_a_block_that_ends_in_time_is_not_left() -> None:
    done = False
    with Deadline(30):
        await anyio.lowlevel.checkpoint()
        done = True
    assert done


async def test_no_deadline_never_ends_a_block() -> None:
    with Deadline(None):
        await anyio.lowlevel.checkpoint()


async def test_an_error_leaves_the_block() -> None:
    with pytest.raises(ValueError, match="broken"), Deadline(30):
        raise ValueError("broken")


async def test_the_inner_deadline_leaves_the_inner_block_only() -> None:
    reached = False
    with Deadline(30):
        with Deadline(0.01):
            await anyio.sleep(30)
        reached = True
    assert reached


async def test_the_outer_deadline_leaves_both_blocks() -> None:
    with Deadline(0.01):
        with Deadline(30):
            await anyio.sleep(30)
        pytest.fail("only the inner block was left")


async def test_a_cancelled_scope_is_no_deadline() -> None:
    """The task is to end: the block must not swallow that."""
    with anyio.CancelScope() as scope:
        event_loop.call_later(0.01, scope.cancel)
        with Deadline(30):
            await anyio.sleep(30)
        pytest.fail("the cancellation was taken for the deadline")
    assert scope.cancelled_caught


async def test_a_cancellation_that_comes_with_the_deadline_is_not_lost() -> None:
    left = anyio.Event()

    async def wait() -> None:
        try:
            with Deadline(0.01):
                await anyio.sleep(30)
            await anyio.sleep(30)
        finally:
            left.set()

    task = event_loop.create_task(wait())
    event_loop.call_later(0.01, task.cancel)
    with anyio.fail_after(10):
        await left.wait()
    await event_loop.wait([task])
    assert task.cancelled()


async def test_the_end_waits_for_every_task() -> None:
    ended: list[int] = []
    tasks = OwnedTasks(pytest.fail)

    async def wait(number: int) -> None:
        await anyio.sleep(0.01)
        ended.append(number)

    for number in range(3):
        tasks.start(wait(number))
    with anyio.fail_after(10):
        await tasks.end(30)
    assert sorted(ended) == [0, 1, 2]


async def test_a_task_that_goes_on_is_cancelled_until_it_ends() -> None:
    tasks = OwnedTasks(pytest.fail)

    async def stubborn() -> None:
        for _ in range(2):
            try:
                await anyio.sleep(30)
            except BaseException:
                continue
        await anyio.sleep(30)

    tasks.start(stubborn())
    with anyio.fail_after(10):
        await tasks.end(0.01)


async def test_the_owner_hears_of_a_failure() -> None:
    heard: list[BaseException] = []
    tasks = OwnedTasks(heard.append)

    async def fail() -> None:
        raise ValueError("broken")

    tasks.start(fail())
    for _ in range(3):
        await anyio.lowlevel.checkpoint()
    assert [str(error) for error in heard] == ["broken"]


async def test_timers_run_in_order() -> None:
    ran: list[str] = []
    event_loop.call_later(0.02, ran.append, "late")
    event_loop.call_later(0.01, ran.append, "soon")
    event_loop.call_later(0, ran.append, "now")
    event_loop.call_later(0.01, ran.append, "soon, made later")
    await anyio.sleep(0.1)
    assert ran == ["now", "soon", "soon, made later", "late"]


async def test_a_timer_never_runs_early() -> None:
    told: list[float] = []
    for number in range(30):
        due = time.monotonic() + number / 1000
        event_loop.call_later(number / 1000, lambda due=due: told.append(time.monotonic() - due))
    await anyio.sleep(0.2)
    assert len(told) == 30
    assert min(told) >= -timers.CLOCK_S


async def test_a_cancelled_timer_does_not_run_and_is_not_kept() -> None:
    ran: list[int] = []
    ours = timers.Timers(event_loop.running_loop())
    made = [ours.add(60, ran.append, (number,)) for number in range(1000)]
    kept = ours.add(0.01, ran.append, (-1,))
    for timer in made:
        timer.cancel()
        timer.cancel()
    assert len(ours._heap) <= 2 * timers.MOST_CANCELLED + 2
    await anyio.sleep(0.1)
    kept.cancel()
    assert ran == [-1]


async def test_a_cancelled_timer_does_not_wake_the_loop() -> None:
    ours = timers.Timers(event_loop.running_loop())
    ours.add(0.01, int, ())
    cancelled = [ours.add(5 + number, int, ()) for number in range(10)]
    ours.add(60, int, ())
    for timer in cancelled:
        timer.cancel()
    await anyio.sleep(0.1)
    assert ours._armed_for > time.monotonic() + 30


async def test_a_timer_that_fails_does_not_stop_others() -> None:
    ran: list[str] = []
    told: list[str] = []
    loop = event_loop.running_loop()
    loop.set_exception_handler(lambda _, context: told.append(context["message"]))
    event_loop.call_later(0, ran.remove, "is not there")
    event_loop.call_later(0, ran.append, "next")
    await anyio.sleep(0.05)
    assert ran == ["next"]
    assert len(told) == 1
    assert "failed" in told[0]


async def test_a_timer_may_make_another() -> None:
    ran: list[str] = []
    event_loop.call_later(0, lambda: event_loop.call_later(0, ran.append, "second"))
    await anyio.sleep(0.05)
    assert ran == ["second"]


async def test_many_due_timers_let_others_run() -> None:
    """Each turn of the loop runs a bounded number of them."""
    ran: list[str] = []
    for _ in range(3 * timers.MOST_AT_ONCE):
        event_loop.call_later(0, ran.append, "timer")
    event_loop.call_later(0, lambda: event_loop.call_soon(ran.append, "other"))
    for _ in range(3 * timers.MOST_AT_ONCE):
        event_loop.call_later(0, ran.append, "timer")
    await anyio.sleep(0.1)
    assert ran.count("timer") == 6 * timers.MOST_AT_ONCE
    assert ran.index("other") < len(ran) - timers.MOST_AT_ONCE


@pytest.mark.skipif(sys.platform != "linux", reason="the selector of Linux")
@pytest.mark.parametrize("seconds", [30 * 86400.0, 1e300])
def test_the_loop_waits_for_a_timer_that_is_years_away(seconds: float) -> None:
    loop = event_loop.new_loop()
    try:
        loop.run_in_executor(None, time.sleep, 0.01).add_done_callback(lambda _: loop.stop())
        loop.call_soon(event_loop.call_later, seconds, print)
        loop.run_forever()
    finally:
        loop.close()
