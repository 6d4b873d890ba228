"""A passed stream whose other side counts as ready while no byte can be moved: no busy loop."""

from __future__ import annotations

import asyncio
import fcntl
import os
import socket
import sys
from collections.abc import Callable

import pytest

from sandboxd.posix import paced_relay
from sandboxd.posix.passed_ends import PipeEnd, open_end
from sandboxd.posix.passed_streams import InputRelay

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="F_SETPIPE_SZ is Linux's")

F_SETPIPE_SZ = 1031
LOOP_TURNS = 400
INPUT = b"x" * 30_000


class CountingRelay(InputRelay):
    wakes = 0

    def _ready(self) -> None:
        self.wakes += 1
        super()._ready()


def passed_pipe() -> tuple[int, Callable[[bytes], int], Callable[[], None]]:
    """(what the client passes, write to it, close the client's end)."""
    read, write = os.pipe()
    return read, lambda data: os.write(write, data), lambda: os.close(write)


def passed_socket() -> tuple[int, Callable[[bytes], int], Callable[[], None]]:
    ours, theirs = socket.socketpair()
    return ours.detach(), theirs.send, theirs.close


def urgent_socket() -> tuple[int, Callable[[bytes], int], Callable[[], None]]:
    """Its urgent byte makes it readable; a look at its data finds nothing."""
    ours, theirs = socket.socketpair()
    return ours.detach(), lambda data: theirs.send(b"!", socket.MSG_OOB), theirs.close


async def loop_turns(number: int) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


async def wakes_after_growth(passed: tuple[int, Callable[[bytes], int], Callable[[], None]]) -> int:
    """How often the relay is called while the command holds its stdin, grown, and does not read."""
    given, write, close = passed
    stdin, sink = os.pipe()
    os.set_blocking(sink, False)
    relay = CountingRelay(open_end(given, writes=False), sink)
    write(INPUT)
    await loop_turns(20)
    fcntl.fcntl(stdin, F_SETPIPE_SZ, 1 << 20)
    before = relay.wakes
    await loop_turns(LOOP_TURNS)
    found = relay.wakes - before
    relay.close()
    os.close(stdin)
    close()
    return found


@pytest.mark.parametrize("passed", [passed_pipe, passed_socket, urgent_socket])
def test_no_busy_loop(
    passed: Callable[[], tuple[int, Callable[[bytes], int], Callable[[], None]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(paced_relay, "PAUSE_S", 3600.0)
    assert asyncio.run(wakes_after_growth(passed())) <= paced_relay.IDLE_TURNS
    # The control: without pauses the relay is called in every turn of the loop.
    monkeypatch.setattr(paced_relay, "IDLE_TURNS", 1 << 30)
    assert asyncio.run(wakes_after_growth(passed())) > LOOP_TURNS // 2


def test_a_grown_pipe_still_gets_its_input() -> None:
    async def work() -> bytes:
        given, write, close = passed_pipe()
        stdin, sink = os.pipe()
        os.set_blocking(sink, False)
        os.set_blocking(stdin, False)
        relay = InputRelay(open_end(given, writes=False), sink)
        write(INPUT)
        close()
        await loop_turns(20)
        fcntl.fcntl(stdin, F_SETPIPE_SZ, 1 << 20)
        found = b""
        while True:
            try:
                piece = os.read(stdin, 1000)
            except BlockingIOError:
                await asyncio.sleep(0.002)
                continue
            if not piece:
                break
            found += piece
        relay.close()
        os.close(stdin)
        return found

    assert asyncio.run(work()) == INPUT


def test_of_a_pipe_that_cannot_be_opened_anew_the_unread_rest_is_left() -> None:
    """As with a pipe that another user has made."""

    async def work() -> bytes:
        given, write, close = passed_pipe()
        left = os.dup(given)
        os.fchmod(given, 0)
        stdin, sink = os.pipe()
        os.set_blocking(sink, False)
        end = open_end(given, writes=False)
        assert isinstance(end, PipeEnd)
        end.own = False  # root opens anything
        relay = InputRelay(end, sink)
        write(b"one\ntwo\nthree\n")
        await loop_turns(20)
        assert os.read(stdin, 4) == b"one\n"
        await loop_turns(20)
        relay.close()
        os.close(stdin)
        close()
        found = os.read(left, 100)
        os.close(left)
        return found

    assert asyncio.run(work()) == b"two\nthree\n"
