"""Notifications to a client. They bypass jsonrpcserver: output must be cheap."""

from __future__ import annotations

from typing import Any

import msgspec

from sandboxd.rpc.channel import Channel
from sandboxd_proto.denial import Denial
from sandboxd_proto.messages import notifications as notes
from sandboxd_proto.messages.execute import Encoding, Outcome, StreamName
from sandboxd_proto.wire import encode


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    jsonrpc: str = "2.0"
    method: str
    params: Any


class ClientListener:
    """Tells one connection what happens to a streaming execution."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    async def _tell(self, method: str, params: Any) -> None:
        await self._channel.send(encode(Notice(method=method, params=params)))

    async def started(self, execution_id: str, backend: str) -> None:
        await self._tell(
            "execution/started", notes.Started(execution_id=execution_id, backend=backend)
        )

    async def output(
        self, execution_id: str, stream: StreamName, seq: int, data: str, encoding: Encoding
    ) -> None:
        params = notes.Output(
            execution_id=execution_id, stream=stream, seq=seq, data=data, encoding=encoding
        )
        await self._tell("execution/output", params)

    async def denial(self, execution_id: str, denial: Denial) -> None:
        params = notes.DenialSeen(execution_id=execution_id, denial=denial)
        await self._tell("execution/denial", params)

    async def exited(
        self, execution_id: str, outcome: Outcome, exit_code: int | None, signal: int | None
    ) -> None:
        params = notes.Exited(
            execution_id=execution_id, outcome=outcome, exit_code=exit_code, signal=signal
        )
        await self._tell("execution/exited", params)
