"""`execute`: params to a checked request; everything that can be refused is refused here."""

from __future__ import annotations

import posixpath
from contextlib import suppress

from msgspec.structs import replace

from sandboxd import event_loop
from sandboxd.denials import ExplainRequest
from sandboxd.platform.current import commands, files
from sandboxd.policy.narrowing import narrow
from sandboxd.policy.plan import Plan
from sandboxd.policy.request import PolicyRequest
from sandboxd.policy.resolve import change_cwd
from sandboxd.rpc.dispatch import Later, RunAgain
from sandboxd.rpc.fd_passing import check_passed
from sandboxd.rpc.handlers.admission import (
    Widened,
    check_mode,
    hold_and_run,
    hold_detached,
    widen_by_grants,
    with_session_defaults,
    within_budget,
)
from sandboxd.rpc.handlers.plan_preparation import wait_for_plan
from sandboxd.rpc.handlers.usable_sandbox import look_again
from sandboxd.rpc.notifications.attached_output import send_output_log
from sandboxd.rpc.notifications.listener import ClientListener
from sandboxd.rpc.policy_request import policy_request_of
from sandboxd.rpc.request_context import RequestContext
from sandboxd.supervisor.approvals.admission import Judged
from sandboxd.supervisor.execution.execution import Execution
from sandboxd.supervisor.execution.output_log import OutputLog
from sandboxd.supervisor.execution.stdio.output import CAPTURE_LIMIT, WHOLE_HEAD, Capture
from sandboxd.supervisor.execution.stdio.pipes import NOTHING_PASSED, Passed
from sandboxd.supervisor.execution.stdio.text import decode_base64
from sandboxd.supervisor.hanging_mount_checks import Wait
from sandboxd.supervisor.request import ExecuteRequest, OutputListener
from sandboxd.supervisor.sandboxes.persistent import PersistentSandbox
from sandboxd.supervisor.sessions.session import Session
from sandboxd.types import PtyRequest
from sandboxd_proto.errors import (
    ApprovalDenied,
    BudgetExceeded,
    CeilingExceeded,
    InvalidParams,
    PathDenied,
    PolicyNotSupported,
    SandboxdError,
)
from sandboxd_proto.manifest import manifest_to_dict
from sandboxd_proto.messages.execute import (
    Base64Data,
    CaptureParams,
    Detached,
    ExecuteParams,
    PassedDescriptors,
    PtySize,
)
from sandboxd_proto.messages.session import OnDenial

# Refusals that are recorded; malformed requests are not.
RECORDED = (ApprovalDenied, BudgetExceeded, CeilingExceeded, PathDenied, PolicyNotSupported)


def execute(call: RequestContext, params: ExecuteParams) -> Later | Detached | RunAgain:
    """Returns when the execution has its id: the client's next message may use it."""
    supervisor = call.service.supervisor
    planned = _planned(call, params)
    if callable(planned):
        return RunAgain(planned)
    try:
        request, found = _request(call, params, planned)
    except RECORDED as error:
        _record_refusal(call, params, error)
        raise
    try:
        request = within_budget(call, request)
        execution = supervisor.accept(request)
    except BaseException as error:
        request.passed.close()
        if isinstance(error, RECORDED):
            _record_refusal(call, params, error)
        raise
    supervisor.join_session(execution)
    if not params.detach:
        call.runs(execution)
    if params.detach and params.stream:
        try:
            _follow(call, execution)
        except SandboxdError:  # too many are followed: nothing would ever end it
            supervisor.give_up(execution)
            raise
    if found.decision == "ask" or (request.session and request.session.widenings):
        return _hold(call, params, execution, found)
    supervisor.start_clock(execution)
    if params.detach:
        supervisor.detach(execution)
        return Detached(execution_id=execution.id)
    running = event_loop.Begun(supervisor.run(execution))
    # With `retry` it may wait for an approval.
    return Later(lambda: running, ends_with_execution=request.on_denial != "retry")


def _record_refusal(call: RequestContext, params: ExecuteParams, error: SandboxdError) -> None:
    with suppress(SandboxdError):
        session = call.session(params.session).id
        given = params.manifest.env if params.manifest is not None else None
        env = list(given.items()) if isinstance(given, dict) else list(given or ())
        call.service.admission.recorder.refused(session, call.requester, params.argv, env, error)


def _hold(
    call: RequestContext, params: ExecuteParams, execution: Execution, found: Judged
) -> Later:
    """Wait for the decision before anything starts; a detached request is answered at once."""
    wait_secs = params.approval_wait_secs
    if not params.detach:
        return Later(lambda: hold_and_run(call, execution, found, wait_secs))
    return Later(lambda: hold_detached(call, execution, found))


def _request(
    call: RequestContext, params: ExecuteParams, planned: _Planned
) -> tuple[ExecuteRequest, Judged]:
    """The request, and how it was judged."""
    received = call.descriptors() if params.fds is not None else ()
    taken = check_passed(params.fds, received) if params.fds is not None else NOTHING_PASSED
    try:
        return _checked(call, params, taken, planned)
    except BaseException:
        taken.close()
        raise


def _checked(
    call: RequestContext, params: ExecuteParams, taken: Passed, planned: _Planned
) -> tuple[ExecuteRequest, Judged]:
    _check_argv(params.argv)
    if params.approval_wait_secs is not None and not 0 <= params.approval_wait_secs <= 86400:
        raise InvalidParams("approval_wait_secs must be 0 to 86400", field="approval_wait_secs")
    session = call.session(params.session)
    if isinstance(planned, SandboxdError):
        raise planned
    kept: PersistentSandbox | None = None
    policy: PolicyRequest | None = None
    grants: tuple[str, ...] = ()
    if isinstance(planned, PersistentSandbox):
        kept, plan = planned, _plan_in(planned, params)
        sent = plan
    else:
        sent, (plan, policy, grants) = planned
    if params.fds is not None:
        _check_passed(params, params.fds)
    creator = kept.session if kept is not None else None
    found = check_mode(call, session, sent, creator, is_widened=policy is not None)
    tmps = call.service.admission.sessions.tmps
    if policy is not None and session.tmp is not None and tmps is not None:
        plan = tmps.plan_with(session, plan)
    on_denial = params.on_denial or session.on_denial
    request = ExecuteRequest(
        argv=tuple(params.argv),
        plan=plan,
        owner=call.connection,
        stdin=_stdin(params.stdin) if params.stdin is not None else b"",
        stdin_open=params.stdin_open,
        capture=_capture(params),
        merge=params.stderr == "stdout",
        pty=_pty(params, params.pty) if params.pty is not None else None,
        detach=params.detach,
        listener=_listener(call, params, on_denial) if params.detach or params.stream else None,
        execution_id=params.execution_id,
        sandbox=kept.id if kept is not None else None,
        passed=taken,
        explain=_asked(params, plan) if params.explain else None,
        session=session,
        client=call.requester,
        grants=grants,
        on_denial=on_denial,
        policy=policy,
        sent=sent,
        effect=found.effect,
        had_fds=params.fds is not None,
        plan_flags=tuple(call.service.admission.plan_flags(session)),
    )
    if plan.sandbox.network.kind == "allow_hosts":
        request = replace(request, ask_egress=call.service.egress_questions.asker(request))
    return request, found


# The plan as it was sent, and with grants; a sandbox that is up; or why there is neither.
_Planned = tuple[Plan, Widened] | PersistentSandbox | SandboxdError


def _planned(call: RequestContext, params: ExecuteParams) -> _Planned | Wait:
    """Or what to await first."""
    if params.sandbox is not None:
        return look_again(call, params.sandbox)
    session = call.session(params.session)
    policy = _wish(call, params, session)
    wait = wait_for_plan(call, policy)
    if wait is not None:
        return wait
    try:
        sent = call.plan_for(policy)
    except SandboxdError as error:
        return error
    wider = widen_by_grants(call, session, policy, sent)
    return (sent, wider) if isinstance(wider, Widened) else wider


def _listener(call: RequestContext, params: ExecuteParams, on_denial: OnDenial) -> OutputListener:
    """A detached execution keeps the end of its output for clients that attach."""
    if params.detach:
        return OutputLog()
    connection = call.connection
    attempt = 1 if on_denial == "retry" else None
    return ClientListener(connection.channel, connection.notify, attempt)


def _follow(call: RequestContext, execution: Execution) -> None:
    """Stream a detached execution to the connection that started it, if it asked for that."""
    output, send = execution.request.listener, call.connection.send_notice
    if isinstance(output, OutputLog):
        call.connection.follow(lambda: send_output_log(output, {}, send), call)


def _capture(params: ExecuteParams) -> Capture | None:
    given = params.capture
    if isinstance(given, CaptureParams):
        if not 0 <= given.bytes <= CAPTURE_LIMIT:
            raise InvalidParams(
                f"capture.bytes must be 0 to {CAPTURE_LIMIT}", field="capture.bytes"
            )
        return Capture(given.bytes, given.keep)
    wanted = not params.stream if given is None else given
    return WHOLE_HEAD if wanted else None


def _asked(params: ExecuteParams, plan: Plan) -> ExplainRequest:
    manifest = manifest_to_dict(params.manifest) if params.manifest is not None else {}
    return ExplainRequest(manifest, plan.preset, plan.workspace)


def _plan_in(kept: PersistentSandbox, params: ExecuteParams) -> Plan:
    for field in ("preset", "workspace", "backend"):
        if getattr(params, field) is not None:
            raise InvalidParams(
                f"a command in an existing sandbox has no {field} of its own", field=field,
                remedy="give it to sandbox/create",
            )  # fmt: skip
    plan = kept.plan if params.manifest is None else narrow(kept.plan, params.manifest)
    if params.cwd is not None:
        plan = change_cwd(plan, absolute_cwd(params.cwd, plan.workspace))
    return plan


def _wish(call: RequestContext, params: ExecuteParams, session: Session) -> PolicyRequest:
    policy = with_session_defaults(call, session, policy_request_of(params))
    if policy.cwd is None:
        return policy
    return replace(policy, cwd=absolute_cwd(policy.cwd, policy.workspace))


def absolute_cwd(cwd: str, workspace: str | None) -> str:
    """A relative one is relative to the workspace."""
    if not cwd or files.spelling_problem(cwd) is None:
        return cwd
    if workspace is None:
        raise InvalidParams(
            f"the working directory {cwd!r} is relative, and there is no workspace", field="cwd",
            remedy="give an absolute path",
        )  # fmt: skip
    return posixpath.normpath(posixpath.join(files.internal(workspace), files.internal(cwd)))


def _check_passed(params: ExecuteParams, fds: PassedDescriptors) -> None:
    if params.pty is not None:
        raise InvalidParams("fds and pty exclude each other", field="fds")
    if fds.stdin is not None and (params.stdin is not None or params.stdin_open):
        raise InvalidParams("fds.stdin and stdin exclude each other", field="fds.stdin")


def _check_argv(argv: list[str]) -> None:
    if not argv or not argv[0]:
        raise InvalidParams(
            "argv names no program", field="argv", remedy='for example ["sh", "-c", "make test"]'
        )
    for index, argument in enumerate(argv):
        if "\0" in argument:
            raise InvalidParams(
                "an argument has NUL in it", field=f"argv[{index}]",
                remedy="no program can be given NUL in an argument: pass it through stdin",
            )  # fmt: skip
    problem = commands.too_long(argv)
    if problem is not None:
        raise InvalidParams(problem[1], field=problem[0], remedy="pass it through stdin or a file")


def _stdin(given: str | Base64Data) -> bytes:
    if isinstance(given, Base64Data):
        return decode_base64(given.base64, "stdin.base64")
    return given.encode()


def _pty(params: ExecuteParams, pty: PtySize) -> PtyRequest:
    check_size(pty.rows, pty.cols, "pty.")
    apart = pty.stderr == "pipe"
    if apart and params.stderr is not None:
        raise InvalidParams("stderr and pty.stderr exclude each other", field="pty.stderr")
    return PtyRequest(pty.rows, pty.cols, pty.echo, apart)


def check_size(rows: int, cols: int, prefix: str = "") -> None:
    for name, value in (("rows", rows), ("cols", cols)):
        if not 0 < value <= 65535:
            raise InvalidParams(f"{name} must be 1 to 65535", field=f"{prefix}{name}")
