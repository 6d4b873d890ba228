"""`manifest/check`: what `execute` would enforce, or the error that it would give."""

from __future__ import annotations

from sandboxd.backends.select import working
from sandboxd.policy.plan import Plan
from sandboxd.rpc.call import Call
from sandboxd.rpc.dispatch import later
from sandboxd.rpc.wishes import wish_of
from sandboxd_proto.manifest import Network
from sandboxd_proto.messages.server import CheckParams, CheckResult, ResolvedManifest


@later
async def manifest_check(call: Call, params: CheckParams) -> CheckResult:
    machine, supervisor = call.service.machine, call.service.supervisor
    plan = call.service.plans.plan_for(wish_of(params))
    backend = await working(plan, machine.config, supervisor.registry)
    return CheckResult(
        backend=backend.name,
        plan=resolved(plan),
        enforcement=dict(backend.enforcement(plan)),
        command_line=[_printable(word) for word in backend.command_line(plan)],
    )


def resolved(plan: Plan) -> ResolvedManifest:
    spec, limits = plan.sandbox, plan.limits
    return ResolvedManifest(
        fs_read_allow=[_printable(p) for p in spec.paths("read")],
        fs_write_allow=[_printable(p) for p in spec.paths("write")],
        fs_deny=[_printable(mask.path) for mask in spec.masks],
        base=spec.base,
        network=Network(kind=spec.network.kind, hosts=list(spec.network.hosts)),
        syscall_policy=plan.syscall_policy,
        timeout_secs=plan.timeout_s,
        max_memory_bytes=limits.memory_bytes,
        max_cpu_secs=limits.cpu_s,
        max_cpus=limits.cpus,
        max_processes=limits.processes,
        max_file_bytes=limits.file_bytes,
        max_output_bytes=limits.output_bytes,
        env=list(plan.env),
        image=spec.image,
        cwd=plan.cwd,
        protected=[_printable(p.path) for p in spec.protected],
    )


def _printable(path: str) -> str:
    """A name on disk need not be UTF-8; JSON must be."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
