"""What the supervisor is asked to run: a checked plan and how its input and output are wanted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from sandboxd.denials import Asked
from sandboxd.policy.plan import Plan
from sandboxd.sandbox import PtyRequest
from sandboxd.supervisor.pipes import Passed
from sandboxd_proto.denial import Denial
from sandboxd_proto.messages.execute import Encoding, Outcome, StreamName

NOTHING_PASSED = Passed()


class Listener(Protocol):
    """Who is told while an execution runs. Slow ones are waited for."""

    async def started(self, execution_id: str, backend: str) -> None: ...
    async def output(
        self, execution_id: str, stream: StreamName, seq: int, data: str, encoding: Encoding
    ) -> None: ...
    async def denial(self, execution_id: str, denial: Denial) -> None: ...
    async def exited(
        self, execution_id: str, outcome: Outcome, exit_code: int | None, signal: int | None
    ) -> None: ...


@dataclass(frozen=True, slots=True)
class ExecuteRequest:
    """`owner`: whose connection it is; only that owner may use the id, unless it is detached.

    `explain`: what was asked for, to be completed by what the command turns out to need.
    """

    argv: tuple[str, ...]
    plan: Plan
    owner: object
    stdin: bytes = b""
    stdin_open: bool = False
    capture: bool = True
    pty: PtyRequest | None = None
    detach: bool = False
    listener: Listener | None = None
    execution_id: str | None = None
    sandbox: str | None = None
    passed: Passed = NOTHING_PASSED
    explain: Asked | None = None
