"""`manifest/check`: what `execute` would enforce, or the error that it would give."""

from __future__ import annotations

from msgspec.structs import replace

from sandboxd.backends.select import find_working
from sandboxd.denials.host import user_name
from sandboxd.policy.plan import Plan
from sandboxd.rpc.dispatch import later
from sandboxd.rpc.handlers.admission import with_session_defaults
from sandboxd.rpc.handlers.plan_preparation import prepare_plan
from sandboxd.rpc.policy_request import policy_request_of
from sandboxd.rpc.request_context import RequestContext
from sandboxd_proto.manifest import Network
from sandboxd_proto.messages.server import CheckParams, CheckResult, ResolvedManifest


@later
async def manifest_check(call: RequestContext, params: CheckParams) -> CheckResult:
    machine, supervisor = call.service.machine, call.service.supervisor
    session = call.session(params.session)
    policy = replace(with_session_defaults(call, session, policy_request_of(params)), dry=True)
    await prepare_plan(call, policy)
    plan = call.plan_for(policy)
    found = call.service.admission.judge(session, plan, is_widened=True)
    backend, enforcement = await find_working(plan, machine.config, supervisor.registry)
    return CheckResult(
        backend=backend.name,
        plan=resolved_manifest(plan, sizes=backend.capabilities.mounts),
        enforcement=dict(enforcement),
        command_line=[_printable(word) for word in backend.command_line(plan)],
        effect=found.effect,
        decision=found.decision,
        grant=found.grant,
        warnings=[_printable(text) for text in plan.nested.warnings],
    )


def resolved_manifest(plan: Plan, *, sizes: bool) -> ResolvedManifest:
    """`sizes`: whether the sandbox has file systems of its own, whose sizes are limits."""
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
        max_processes=limits.process_bound,
        max_file_bytes=limits.file_bytes,
        max_output_bytes=limits.output_bytes,
        tmp_bytes=spec.tmp_bytes if sizes else None,
        shm_bytes=spec.shm_bytes if sizes else None,
        env=list(plan.env),
        image=spec.image,
        cwd=plan.cwd,
        protected=[_printable(p.path) for p in spec.protected],
        run_as=None if spec.run_as is None else _printable(user_name(spec.run_as.uid)),
    )


def _printable(path: str) -> str:
    """A name on disk need not be UTF-8; JSON must be."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
