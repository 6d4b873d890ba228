"""A request to the supervisor: a checked plan, and where its input and output go."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

import msgspec

from sandboxd.denials import ExplainRequest
from sandboxd.policy.plan import Plan
from sandboxd.policy.request import PolicyRequest
from sandboxd.supervisor.execution.stdio.output import WHOLE_HEAD, Capture
from sandboxd.supervisor.execution.stdio.pipes import NOTHING_PASSED, Passed
from sandboxd.supervisor.sessions.session import Session
from sandboxd.traffic import Traffic
from sandboxd.types import PtyRequest
from sandboxd_proto.denial import Denial
from sandboxd_proto.messages.approval import Effect, Requester
from sandboxd_proto.messages.execute import Encoding, Outcome, StreamName
from sandboxd_proto.messages.session import OnDenial

# (execution id, its traffic, host, port) → whether it may connect.
AskEgress = Callable[[str, Traffic, str, int], Awaitable[bool]]
NOBODY = Requester(name="unknown", pid=None)


class OutputListener(Protocol):
    """Receives events while an execution runs. The execution waits for a slow one."""

    def next_attempt(self) -> OutputListener: ...
    def progress(self, execution_id: str, phase: str, done: int, total: int | None) -> None: ...
    async def started(self, execution_id: str, backend: str) -> None: ...
    async def output(
        self, execution_id: str, stream: StreamName, seq: int, data: str, encoding: Encoding
    ) -> None: ...
    async def denial(self, execution_id: str, denial: Denial) -> None: ...
    async def exited(
        self, execution_id: str, outcome: Outcome, exit_code: int | None, signal: int | None
    ) -> None: ...


class ExecuteRequest(msgspec.Struct, frozen=True):
    """`owner`: whose connection it is; only that owner may use the id, unless it is detached.

    `merge`: one pipe for stdout and stderr, so that their order stays.
    `explain`: what was asked for, to be completed by what the command turns out to need.
    `policy` and `sent`: the request and its plan before grants were added. `on_denial`: what
    follows from denials; `ask_egress`: asks about hosts that the manifest does not name. `attempt`
    counts from 1. `plan_flags`: where plan mode is set that holds for the session.
    """

    argv: tuple[str, ...]
    plan: Plan
    owner: object
    stdin: bytes = b""
    stdin_open: bool = False
    capture: Capture | None = WHOLE_HEAD
    merge: bool = False
    timeout_is_budget: bool = False
    pty: PtyRequest | None = None
    detach: bool = False
    listener: OutputListener | None = None
    execution_id: str | None = None
    session: Session | None = None
    client: Requester = NOBODY
    grants: tuple[str, ...] = ()
    sandbox: str | None = None
    passed: Passed = NOTHING_PASSED
    explain: ExplainRequest | None = None
    on_denial: OnDenial = "report"
    policy: PolicyRequest | None = None
    sent: Plan | None = None
    effect: Effect = "read"
    ask_egress: AskEgress | None = None
    had_fds: bool = False
    plan_flags: tuple[str, ...] = ()
    attempt: int = 1
