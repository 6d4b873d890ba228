"""What the daemon says by itself while a streaming execution runs, in the order of the stream.

`attempt` is given where a command may run again after a denial was approved."""

from __future__ import annotations

from binascii import a2b_base64

import msgspec

from sandboxd_proto.denial import Denial
from sandboxd_proto.messages.execute import Encoding, Outcome, StreamName
from sandboxd_proto.wire import Reported


class Started(Reported, frozen=True, kw_only=True):
    execution_id: str
    backend: str
    attempt: int | msgspec.UnsetType = msgspec.UNSET


class Output(Reported, frozen=True, kw_only=True):
    execution_id: str
    stream: StreamName
    seq: int
    data: str
    encoding: Encoding
    attempt: int | msgspec.UnsetType = msgspec.UNSET

    @property
    def raw(self) -> bytes:
        """What the command wrote, exactly."""
        return a2b_base64(self.data) if self.encoding == "base64" else self.data.encode()

    @property
    def text(self) -> str:
        """The same as text; bytes that are not UTF-8 show as the replacement character."""
        return self.raw.decode(errors="replace")


class DenialSeen(Reported, frozen=True, kw_only=True):
    execution_id: str
    denial: Denial
    attempt: int | msgspec.UnsetType = msgspec.UNSET


class Progress(Reported, frozen=True, kw_only=True):
    """Long work before a command runs, of an execution or of a sandbox that is being created (its
    name or id). `phase`: `image` in bytes, `start` of a remote sandbox. `total` is null where it
    is not known."""

    phase: str
    done: int
    total: int | None
    execution_id: str | msgspec.UnsetType = msgspec.UNSET
    sandbox: str | msgspec.UnsetType = msgspec.UNSET


class Exited(Reported, frozen=True, kw_only=True):
    execution_id: str
    outcome: Outcome
    exit_code: int | None
    signal: int | None
    attempt: int | msgspec.UnsetType = msgspec.UNSET
