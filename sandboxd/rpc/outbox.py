"""Answers and notifications that a client has not read yet: counted and bounded."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from sandboxd.rpc.answers.encoding import encode
from sandboxd.rpc.dispatch import failure
from sandboxd.rpc.transport.interface import Transport
from sandboxd_proto.errors import InternalError

log = logging.getLogger(__name__)
MAX_UNSENT_ANSWERS = 64
MAX_UNSENT_BYTES = 16 << 20  # of answers
MAX_UNREAD_BYTES = 8 << 20  # of notifications


class Outbox:
    """A frame that the client does not take at once waits in a task of `start_soon`.

    `on_room` is called when the outbox was full and is not any more.
    """

    def __init__(
        self, channel: Transport, start_soon: Callable[..., object], on_room: Callable[[], None]
    ) -> None:
        self.unsent_answers = 0
        self._unsent_bytes = 0
        self._unread_bytes = 0
        self._channel = channel
        self._start_soon = start_soon
        self._on_room = on_room

    @property
    def is_full(self) -> bool:
        """Too many answers wait for a client that does not read."""
        many = self.unsent_answers > MAX_UNSENT_ANSWERS
        return many or self._unsent_bytes > MAX_UNSENT_BYTES

    def answer(self, frame: bytes) -> None:
        rest = self._channel.send_at_once(frame)
        if rest is not None:
            self.unsent_answers += 1
            self._unsent_bytes += len(frame)
            self._start_soon(self._answer_later, rest, len(frame))
            if self.is_full:
                self._channel.pause()

    async def _answer_later(self, rest: Callable[[], Awaitable[None]], size: int) -> None:
        try:
            await rest()
        finally:
            was_full = self.is_full
            self.unsent_answers -= 1
            self._unsent_bytes -= size
            if was_full and not self.is_full:
                self._on_room()

    def notify(self, frame: bytes) -> bool:
        """False if the client has left too many bytes of notifications unread."""
        rest = self._channel.send_at_once(frame)
        if rest is None:
            return True
        self._unread_bytes += len(frame)
        if self._unread_bytes > MAX_UNREAD_BYTES:
            return False
        self._start_soon(self._notify_later, rest, len(frame))
        return True

    async def _notify_later(self, rest: Callable[[], Awaitable[None]], size: int) -> None:
        try:
            await rest()
        finally:
            self._unread_bytes -= size


def encode_answer(answer: Any) -> bytes:
    """An answer that cannot be encoded becomes an error, and does not end the connection."""
    try:
        return encode(answer)
    except Exception:
        log.exception("an answer could not be encoded")
        asked = answer.get("id") if isinstance(answer, dict) else None
        return encode(failure(asked, InternalError("the answer could not be encoded")))
