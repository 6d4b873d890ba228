"""`initialize`, `status`, `rpc.discover`, `shutdown`: the daemon about itself."""

from __future__ import annotations

import logging
import os
import time
from functools import cache

import anyio
import msgspec

import sandboxd
from sandboxd import logs
from sandboxd.backends.interface import Available, Backend, Unavailable
from sandboxd.backends.select import candidates
from sandboxd.backends.unsandboxed_keys import second_key_missing
from sandboxd.config.config import Config
from sandboxd.policy.presets import PRESETS
from sandboxd.rpc.dispatch import later
from sandboxd.rpc.request_context import RequestContext
from sandboxd.rpc.service import Service
from sandboxd.supervisor.host_facts import cgroup_version, landlock_abi
from sandboxd_proto import PROTOCOL_VERSION
from sandboxd_proto.messages.execution import NoParams, Nothing
from sandboxd_proto.messages.server import (
    BackendStatus,
    BackendUse,
    InitializeParams,
    InitializeResult,
    Party,
    SandboxCounts,
    StatusResult,
)
from sandboxd_proto.openrpc import document
from sandboxd_proto.wire import encode

log = logging.getLogger(__name__)


def initialize(call: RequestContext, params: InitializeParams) -> InitializeResult:
    if params.client is not None:
        call.connection.name_client(params.client.name)
    found = candidates(call.service.machine.config, call.service.supervisor.registry)
    return InitializeResult(
        server=Party(name="sandboxd", version=sandboxd.__version__),
        protocol=PROTOCOL_VERSION,
        backend=found[0].name if found else None,
        presets=list(PRESETS),
        capabilities={"sessions": 1, "approvals": 1, "events": 1, "audit": 1},
        warnings=call.service.config_file.warnings(),
        backend_setting=call.service.machine.config.backend,
        environment={
            name: value
            for name, value in os.environ.items()
            if name.startswith("SANDBOXD_") and not name.endswith("_KEY")
        },
    )


@later
async def status(call: RequestContext, params: NoParams) -> msgspec.Raw:
    """One at a time, for all who asked before it began: it probes every backend."""

    async def made() -> msgspec.Raw:
        return msgspec.Raw(encode(await _status(call.service)))

    return await call.service.status.result(made)


async def _status(service: Service) -> StatusResult:
    registry, config = service.supervisor.registry, service.machine.config
    found: dict[str, BackendStatus] = {}
    notes: dict[str, tuple[str, ...]] = {}
    warnings: list[str] = []
    preferred = [backend.name for backend in candidates(config, registry)]
    async with anyio.create_task_group() as probes:
        for name in registry.names():
            probes.start_soon(_probe, registry[name], registry.use_of(name), found, notes)
    if second_key_missing(config):
        preferred = []
    working = [name for name in preferred if found[name].available]
    warnings += notes[working[0]] if working else [_refusal(config)]
    warnings += service.config_file.warnings()
    if lost := logs.dropped():
        warnings.append(f"{lost} log lines were dropped, because the daemon's stderr is not read")
    if service.admission.sessions.plan_mode:
        warnings.append(
            "plan mode is on for every session: only sandboxes run in which nothing can be written"
        )
    trail = service.admission.recorder.trail
    if trail is None:
        warnings.append("there is no audit trail: its folder could not be opened")
    elif trail.failure is not None:
        warnings.append(f"{trail.failure}; {trail.lost} records are lost")
    if (unsaved := service.admission.sessions.store.failure) is not None:
        warnings.append(f"{unsaved}: restrictions of named sessions are lost at the next start")
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
        sessions=len(service.admission.sessions.all()),
        approvals=len(service.admission.approvals.pending()),
        approvers=service.admission.approvals.approvers,
        backend_setting=config.backend,
        log=logs.find_log(os.environ),
        bwrap_available="bubblewrap" in found and found["bubblewrap"].available,
    )


def _refusal(config: Config) -> str:
    if second_key_missing(config):
        return "backend is none and the second key is not set: every command is refused"
    if config.backend != "auto":
        return (
            f"the settings name the backend {config.backend}, which does not work: every command "
            "is refused"
        )
    return "no sandbox works here: every command is refused"


async def _probe(
    backend: Backend, use: BackendUse, found: dict[str, BackendStatus],
    notes: dict[str, tuple[str, ...]],
) -> None:  # fmt: skip
    try:
        probe = await backend.probe()
    except Exception as error:  # an exception in a probe means that the backend does not work
        log.exception("probing %s failed", backend.name)
        probe = Unavailable(f"its probe failed: {error}", "the daemon's log says more")
    reason, remedy, layers = None, None, list[str]()
    if isinstance(probe, Available):
        layers, notes[backend.name] = list(probe.layers), probe.warnings
    else:
        reason, remedy = probe.reason, probe.remedy
    found[backend.name] = BackendStatus(
        name=backend.name, available=reason is None, reason=reason, remedy=remedy, layers=layers,
        use=use, remote=backend.capabilities.remote,
    )  # fmt: skip


def discover(call: RequestContext, params: NoParams) -> msgspec.Raw:
    return _discovered()


@cache
def _discovered() -> msgspec.Raw:
    """Made once: the schemas of all methods take some thirty milliseconds."""
    return msgspec.Raw(encode(document()))


def shutdown(call: RequestContext, params: NoParams) -> Nothing:
    call.service.stop.set()
    return Nothing()
