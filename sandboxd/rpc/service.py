"""What every connection shares: the supervisor, the methods, counts, and how to end the daemon."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import anyio

from sandboxd.policy.plan_cache import PlanCache
from sandboxd.policy.resolve import Machine
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
    clients: int = 0
    started_at: float = field(default_factory=time.monotonic)
    last_busy: float = field(default_factory=time.monotonic)
