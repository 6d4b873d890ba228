"""`initialize`, `status`, `rpc.discover`, `shutdown`: the daemon about itself."""

from __future__ import annotations

import logging
import os
import time

import anyio

import sandboxd
from sandboxd.backends.interface import Available, Backend, Unavailable
from sandboxd.backends.select import candidates
from sandboxd.policy.presets import PRESETS
from sandboxd.rpc.call import Call
from sandboxd.rpc.dispatch import later
from sandboxd.supervisor.facts import cgroup_version, landlock_abi
from sandboxd_proto import PROTOCOL_VERSION
from sandboxd_proto.messages.execution import NoParams, Nothing
from sandboxd_proto.messages.server import (
    BackendStatus,
    InitializeParams,
    InitializeResult,
    OpenRpc,
    Party,
    SandboxCounts,
    StatusResult,
)
from sandboxd_proto.openrpc import document

log = logging.getLogger(__name__)


def initialize(call: Call, params: InitializeParams) -> InitializeResult:
    found = candidates(call.service.machine.config, call.service.supervisor.registry)
    return InitializeResult(
        server=Party(name="sandboxd", version=sandboxd.__version__),
        protocol=PROTOCOL_VERSION,
        backend=found[0].name if found else None,
        presets=list(PRESETS),
    )


@later
async def status(call: Call, params: NoParams) -> StatusResult:
    """Always probes for real: what is said here was tried just now."""
    service = call.service
    registry, config = service.supervisor.registry, service.machine.config
    found: dict[str, BackendStatus] = {}
    notes: dict[str, tuple[str, ...]] = {}
    warnings: list[str] = []
    preferred = [backend.name for backend in candidates(config, registry)]
    async with anyio.create_task_group() as probes:
        for name in registry.names():
            probes.start_soon(_probe, registry[name], found, notes)
    if config.backend == "none" and not config.allow_no_sandbox:
        preferred = []
        warnings.append("backend is none and the second key is not set: every command is refused")
    working = [name for name in preferred if found[name].available]
    if working:
        warnings += notes[working[0]]
    else:
        warnings.append("no sandbox works here: every command is refused")
    return StatusResult(
        version=sandboxd.__version__,
        pid=os.getpid(),
        uptime_ms=round((time.monotonic() - service.started_at) * 1000, 1),
        backend=working[0] if working else None,
        backends=[found[name] for name in registry.names()],
        executions=len(service.supervisor.executions),
        clients=service.clients,
        sandboxes=SandboxCounts(
            warm=service.supervisor.pool.warm, persistent=len(service.supervisor.sandboxes)
        ),
        warnings=warnings,
        landlock_abi=landlock_abi(),
        cgroup_version=cgroup_version(),
        bwrap_available="bubblewrap" in found and found["bubblewrap"].available,
    )


async def _probe(
    backend: Backend, found: dict[str, BackendStatus], notes: dict[str, tuple[str, ...]]
) -> None:
    try:
        probe = await backend.probe()
    except Exception as error:  # a probe that breaks is a backend that does not work
        log.exception("probing %s failed", backend.name)
        probe = Unavailable(f"its probe failed: {error}", "the daemon's log says more")
    if isinstance(probe, Available):
        found[backend.name] = BackendStatus(
            name=backend.name, available=True, reason=None, remedy=None, layers=list(probe.layers)
        )
        notes[backend.name] = probe.warnings
    else:
        found[backend.name] = BackendStatus(
            name=backend.name, available=False, reason=probe.reason, remedy=probe.remedy, layers=[]
        )


def discover(call: Call, params: NoParams) -> OpenRpc:
    return document()


def shutdown(call: Call, params: NoParams) -> Nothing:
    call.service.stop.set()
    return Nothing()
