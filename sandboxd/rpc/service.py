"""What every connection shares: the supervisor, the methods, counts, and how to end the daemon."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import anyio
import msgspec

from sandboxd.concurrency.shared_work import SharedWork
from sandboxd.config.staleness import ConfigFile
from sandboxd.policy.plan_cache import PlanCache
from sandboxd.policy.request import Machine
from sandboxd.rpc.notifications.hub import Hub
from sandboxd.rpc.partial_frames import PartialFrames
from sandboxd.rpc.plan_limiter import PlanLimiter
from sandboxd.rpc.turns import Turns
from sandboxd.supervisor.approvals.admission import Admission
from sandboxd.supervisor.egress_questions import EgressQuestions
from sandboxd.supervisor.sessions.lifecycle import SessionLifecycle
from sandboxd.supervisor.supervisor import Supervisor

if TYPE_CHECKING:
    from sandboxd.rpc.dispatch import Dispatcher


@dataclass(slots=True)
class Service:
    supervisor: Supervisor
    machine: Machine
    dispatcher: Dispatcher
    stop: anyio.Event
    plans: PlanCache
    admission: Admission
    hub: Hub
    lifecycle: SessionLifecycle
    egress_questions: EgressQuestions
    config_file: ConfigFile
    planning: PlanLimiter = field(default_factory=PlanLimiter)
    turns: Turns = field(default_factory=Turns)
    status: SharedWork[msgspec.Raw] = field(default_factory=SharedWork)
    clients: int = 0
    subscriptions: int = 0
    follows: int = 0
    partial_frames: PartialFrames = field(default_factory=PartialFrames)
    started_at: float = field(default_factory=time.monotonic)
    last_busy: float = field(default_factory=time.monotonic)

    def left(self, connection: object) -> None:
        """A connection has ended."""
        self.partial_frames.hold(connection, 0)
        if connection in self.hub.approvers:
            self.hub.approvers.discard(connection)
            self.admission.approvals.approver_left()
        before = self.admission.sessions.leave(connection)
        if before is not None and before.implicit and not before.executions:
            for approval in self.admission.approvals.pending():
                if approval.question.session == before.id:
                    self.admission.approvals.end(approval, "session_closed")
