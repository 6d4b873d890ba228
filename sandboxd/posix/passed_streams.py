"""Relay bytes between a pipe or socket that a client passed and the command's own pipe.

A command never gets a descriptor of the client's: it could reopen a pipe in the other direction
through /proc/self/fd, and change flags and size for everyone else who has it. So the daemon moves
the bytes, by splice(2) between pipes. A slow client slows its own command only: nothing waits here,
and each callback moves a bounded number of bytes.
"""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Callable
from contextlib import suppress

from sandboxd import event_loop
from sandboxd.posix.paced_relay import TURN_BYTES, PacedRelay
from sandboxd.posix.passed_ends import (
    PIPE_BYTES,
    End,
    PipeEnd,
    is_ready,
    resize,
    splice,
    tee,
    unread,
)

PIECE_BYTES = 64 * 1024
SCANNED_BYTES = 64 * 1024
EXACT_BYTES = 256 * 1024
ONE_BUFFER = 4096


class OutputRelay(PacedRelay):
    """From the command's pipe (`source`, nonblocking, of the caller's) to the client's end.

    `take`: how much of these bytes may pass. `left`: how many bytes may still pass (None: any
    number), `spend`: so many did. `scans`: whether the first bytes go through `take`; the others
    do not pass through this process. `lost`: the client is gone; closes `source`, so that the
    command gets SIGPIPE.
    """

    def __init__(
        self, source: int, end: End, *, take: Callable[[bytes], bytes],
        left: Callable[[], int | None], spend: Callable[[int], None], scans: bool,
        lost: Callable[[], None],
    ) -> None:  # fmt: skip
        super().__init__(source, end.fd)
        self._end = end
        self._take, self._left, self._spend, self._lost = take, left, spend, lost
        self._held = b""
        self._to_scan = SCANNED_BYTES if scans and end.own else 0
        self._splices = sys.platform == "linux" and isinstance(end, PipeEnd)
        self._finishing = self._hurried = False
        self._done: event_loop.Future[None] = event_loop.create_future()
        if end.gone:
            self._fail()
        else:
            self._watch(reading=True)

    def _step(self) -> bool:
        """False when there is something to wait for, or nothing left.

        After splice(2) the event loop is asked: a second one would mostly find a full pipe.
        """
        if self._held:
            return self._write_held()
        left = self._left()
        if self._to_scan > 0 or not self._splices or left == 0:
            return self._read()
        try:
            count = splice(self._source, self._target, min(TURN_BYTES, left or TURN_BYTES))
        except BlockingIOError:
            # Only we read the source: if it is empty now, it was empty then. The client's pipe may
            # have been read from meanwhile.
            if is_ready(self._source, select.POLLIN):
                self._wait_for_client()
            else:
                self._wait_for_command()
            return False
        if count == 0:
            self._stop()
            return False
        self._spend(count)
        self._moved += count
        return False

    def _read(self) -> bool:
        try:
            data = os.read(self._source, PIECE_BYTES)
        except BlockingIOError:
            self._wait_for_command()
            return False
        if not data:
            self._stop()
            return False
        self._moved += len(data)
        self._to_scan -= len(data)
        self._held = self._take(data)
        return not self._held or self._write_held()

    def _write_held(self) -> bool:
        try:
            count = self._end.write(self._held)
        except BlockingIOError:
            self._wait_for_client()
            return False
        self._held = self._held[count:]
        self._moved += count
        return True

    def _wait_for_command(self) -> None:
        if self._finishing:  # what still holds the pipe is not waited for
            self._stop()
        else:
            self._watch(reading=True)

    def _wait_for_client(self) -> None:
        if self._finishing and self._hurried:
            self._stop()
        else:
            self._watch(writing=True)

    def _stop(self) -> None:
        self._watch()
        self._end.close()
        if not self._done.done():
            self._done.set_result(None)

    def _fail(self) -> None:
        self._stop()
        self._lost()

    async def finish(self) -> None:
        """Until all that was written is with the client, or the client is gone."""
        self._finishing = True
        if self._hurried and self._writing:
            self._stop()
        self._go_on()
        await self._done

    def _go_on(self) -> None:
        if self._done.done() or self._writing:
            return
        self._turn()
        if not self._done.done() and not self._writing:
            event_loop.call_soon(self._go_on)

    def hurry(self) -> None:
        """A client that does not read is not waited for at the end."""
        self._hurried = True
        if self._finishing and self._writing:
            self._stop()

    def close(self) -> None:
        self._stop()


class InputRelay(PacedRelay):
    """From the client's end to the command's stdin (`sink`, nonblocking). Owns both.

    What the command does not read is left in the client's pipe, for its next reader: bytes are
    offered as a copy (tee(2), MSG_PEEK), one pipe buffer at a time, and taken from the client when
    the command has read them. After EXACT_BYTES the command counts as one that reads everything,
    and its input is moved at full speed.
    """

    def __init__(self, end: End, sink: int) -> None:
        super().__init__(end.fd, sink)
        self._end = end
        self._offered = 0
        self._exact_left = EXACT_BYTES
        self._held = b""
        self._open = True
        resize(sink, ONE_BUFFER)
        self._watch(reading=True)

    def _step(self) -> bool:
        """False when there is something to wait for, or nothing left."""
        try:
            if self._offered:
                return self._consume_offer()
            if self._exact_left > 0:
                return self._offer()
            if isinstance(self._end, PipeEnd):
                self._passed_on(splice(self._source, self._target, TURN_BYTES))
                return False
            self._held = self._held or self._end.read(PIECE_BYTES)
            count = os.write(self._target, self._held) if self._held else 0
            self._held = self._held[count:]
            return self._passed_on(count)
        except BlockingIOError:
            full = bool(self._held) or not is_ready(self._target, select.POLLOUT)
            self._watch(reading=not full, writing=full)
            return False

    def _passed_on(self, count: int) -> bool:
        if count == 0:
            self.close()
        self._moved += count
        return count > 0

    def _offer(self) -> bool:
        """Then the sink can be written to again when the command has read it all."""
        if isinstance(self._end, PipeEnd):
            self._offered = tee(self._source, self._target, ONE_BUFFER)
        else:
            data = self._end.peek(ONE_BUFFER)
            self._offered = os.write(self._target, data) if data else 0
        if self._offered:
            self._watch(writing=True)
        else:
            self.close()
        return False

    def _consume_offer(self) -> bool:
        if is_ready(self._target, select.POLLERR):
            self.close()  # the command has closed its stdin
            return False
        self._consume()
        return not self._offered

    def _consume(self) -> None:
        """Take from the client what the command has read of what was offered."""
        read = self._offered - unread(self._target)
        if read > 0:
            self._exact_left -= read
            self._offered -= read
            self._moved += read
            self._end.discard(read)
        if self._exact_left <= 0 and not self._offered:
            resize(self._target, PIPE_BYTES)

    def _fail(self) -> None:
        self.close()

    def close(self) -> None:
        if self._open:
            self._open = False
            self._watch()
            with suppress(OSError):
                if self._offered:
                    self._consume()
            self._end.close()
            os.close(self._target)
