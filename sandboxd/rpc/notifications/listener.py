"""Notifications to a client. They bypass jsonrpcserver: output must be cheap."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from sandboxd.rpc.answers.encoding import encode
from sandboxd.rpc.transport.interface import Transport
from sandboxd_proto.denial import Denial
from sandboxd_proto.messages import notifications as notes
from sandboxd_proto.messages.execute import Encoding, Outcome, StreamName


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    jsonrpc: str = "2.0"
    method: str
    params: Any


Notify = Callable[[str, Any], None]


class ClientListener:
    """Tells one connection what happens to a streaming execution."""

    def __init__(self, channel: Transport, notify: Notify, attempt: int | None = None) -> None:
        """`attempt`: told where a command may run several times."""
        self._channel = channel
        self._notify = notify
        self._attempt: int | msgspec.UnsetType = msgspec.UNSET if attempt is None else attempt

    def next_attempt(self) -> ClientListener:
        number = 1 if isinstance(self._attempt, msgspec.UnsetType) else self._attempt
        return ClientListener(self._channel, self._notify, number + 1)

    async def _tell(self, method: str, params: Any) -> None:
        await self._channel.send(encode(Notice(method=method, params=params)))

    def progress(self, execution_id: str, phase: str, done: int, total: int | None) -> None:
        params = notes.Progress(execution_id=execution_id, phase=phase, done=done, total=total)
        self._notify("execution/progress", params)

    async def started(self, execution_id: str, backend: str) -> None:
        await self._tell(
            "execution/started",
            notes.Started(execution_id=execution_id, backend=backend, attempt=self._attempt),
        )

    async def output(
        self, execution_id: str, stream: StreamName, seq: int, data: str, encoding: Encoding
    ) -> None:
        params = notes.Output(
            execution_id=execution_id,
            stream=stream,
            seq=seq,
            data=data,
            encoding=encoding,
            attempt=self._attempt,
        )
        await self._tell("execution/output", params)

    async def denial(self, execution_id: str, denial: Denial) -> None:
        params = notes.DenialSeen(execution_id=execution_id, denial=denial, attempt=self._attempt)
        await self._tell("execution/denial", params)

    async def exited(
        self, execution_id: str, outcome: Outcome, exit_code: int | None, signal: int | None
    ) -> None:
        params = notes.Exited(
            execution_id=execution_id,
            outcome=outcome,
            exit_code=exit_code,
            signal=signal,
            attempt=self._attempt,
        )
        await self._tell("execution/exited", params)
