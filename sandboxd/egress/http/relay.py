"""Relay the requests of a plain HTTP connection: each one is parsed and checked before it is sent.

Answers are not parsed, except to see whether an upgrade took place. Redirects are not followed: a
client that follows one makes a new request, which is checked.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from typing import Literal

import anyio

from sandboxd.egress.http.head import HeadMalformed, RequestHead, head_end, parse
from sandboxd.egress.http.upgrade import is_accepted, is_undecided, wants_upgrade
from sandboxd.egress.sockets import Inbound, Turn, receive, send_all
from sandboxd.egress.splice import Activity, Count

MAX_LINE = 1024
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[\x20-\x7e\t]*)?\Z")

# Takes a head and whether it is the first; returns the bytes to send, raises to refuse.
Rewrite = Callable[[RequestHead, bool], bytes]


async def read_head(inbound: Inbound, patience_s: float) -> RequestHead | None:
    """The next request's head; None at the end of the stream. HeadMalformed for anything else."""
    if not inbound.buffer and not await inbound.more():
        return None
    try:
        with anyio.fail_after(patience_s):
            while (end := head_end(inbound.buffer)) < 0:
                if not await inbound.more():
                    raise HeadMalformed("the request's header is cut off")
    except TimeoutError:
        raise HeadMalformed(
            f"the request's header took longer than {patience_s:g} s", "408 Request Timeout"
        ) from None
    return parse(inbound.taken(end))


def is_last(head: RequestHead) -> bool:
    """A server that does not read a body parses it as requests, so nothing may follow it."""
    return head.has_body


Ending = Literal["switched", "ended", "last"]


class Requests:
    """The client's half of a connection. `single`: one request, then the connection ends."""

    def __init__(
        self, inbound: Inbound, server: socket.socket, rewrite: Rewrite, count: Count,
        activity: Activity, *, patience_s: float, single: bool,
    ) -> None:  # fmt: skip
        self._inbound = inbound
        self._server = server
        self._rewrite = rewrite
        self._count = count
        self._activity = activity
        self._patience_s = patience_s
        self._single = single
        self._turn = Turn()
        self._first: RequestHead | None = None
        self.answered = anyio.Event()
        self.switched = False

    async def forward(self, head: RequestHead) -> Ending:
        """From the first head on. "switched": the rest is opaque; "last": nothing may follow."""
        first = True
        self._first = head
        following: RequestHead | None = head
        while following is not None:
            await self._turn.step()
            await self._send(self._rewrite(following, first))
            await self._body(following)
            if first and wants_upgrade(following):
                await self.answered.wait()
                if self.switched:
                    return "switched"
            if self._single or is_last(following):
                return "last"
            following = await read_head(self._inbound, self._patience_s)
            first = False
        return "ended"

    async def watch_answer(self, client: socket.socket, received: Count) -> None:
        """Relay the beginning of the first answer, and see whether the protocol changes."""
        start = b""
        try:
            while is_undecided(start):
                data = await receive(self._server)
                if not data:
                    return
                start += data
                received(len(data))
                self._activity.note_progress()
                await send_all(client, data)
            self.switched = self._first is not None and is_accepted(start, self._first)
        finally:
            self.answered.set()

    async def _send(self, data: bytes) -> None:
        self._count(len(data))
        self._activity.note_progress()
        await send_all(self._server, data)

    async def _body(self, head: RequestHead) -> None:
        if head.length is not None:
            await self._copy(head.length)
            return
        while (size := await self._chunk_size()) > 0:
            await self._turn.step()
            await self._send(b"%x\r\n" % size)
            await self._copy(size)
            if await self._line() != b"":
                raise HeadMalformed("a chunk is longer than it says")
            await self._send(b"\r\n")
        while await self._line() != b"":
            await self._turn.step()  # trailers are dropped: the server gets only what was checked
        await self._send(b"0\r\n\r\n")

    async def _chunk_size(self) -> int:
        match = _SIZE.match(await self._line())
        if match is None:
            raise HeadMalformed("the size of a chunk is not a number")
        return int(match[1], 16)

    async def _line(self) -> bytes:
        while (end := self._inbound.buffer.find(b"\n")) < 0:
            if len(self._inbound.buffer) > MAX_LINE or not await self._inbound.more():
                raise HeadMalformed("the body's chunks are cut off")
        line = self._inbound.taken(end + 1)
        if not line.endswith(b"\r\n") or b"\r" in line[:-2] or len(line) > MAX_LINE:
            raise HeadMalformed("a line of the body's chunks is not one")
        return line[:-2]

    async def _copy(self, size: int) -> None:
        while size:
            if not self._inbound.buffer and not await self._inbound.more():
                raise HeadMalformed("the request's body is cut off")
            data = self._inbound.taken(min(size, len(self._inbound.buffer)))
            await self._send(data)
            size -= len(data)
