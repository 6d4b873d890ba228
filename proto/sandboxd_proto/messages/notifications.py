"""What the daemon says by itself while a streaming execution runs, in the order of the stream."""

from __future__ import annotations

from sandboxd_proto.denial import Denial
from sandboxd_proto.messages.execute import Encoding, Outcome, StreamName
from sandboxd_proto.wire import Reported


class Started(Reported, frozen=True, kw_only=True):
    execution_id: str
    backend: str


class Output(Reported, frozen=True, kw_only=True):
    execution_id: str
    stream: StreamName
    seq: int
    data: str
    encoding: Encoding


class DenialSeen(Reported, frozen=True, kw_only=True):
    execution_id: str
    denial: Denial


class Exited(Reported, frozen=True, kw_only=True):
    execution_id: str
    outcome: Outcome
    exit_code: int | None
    signal: int | None
