"""`execute`: params to a checked request; everything that can be refused is refused here."""

from __future__ import annotations

from sandboxd.denials import Asked
from sandboxd.policy.plan import Plan
from sandboxd.policy.resolve import moved
from sandboxd.rpc.call import Call
from sandboxd.rpc.dispatch import Later
from sandboxd.rpc.notices import ClientListener
from sandboxd.rpc.passed import passed
from sandboxd.rpc.wishes import wish_of
from sandboxd.sandbox import PtyRequest
from sandboxd.supervisor.pipes import Passed
from sandboxd.supervisor.request import NOTHING_PASSED, ExecuteRequest
from sandboxd.supervisor.text import decode_base64
from sandboxd_proto.errors import InvalidParams, NotFound, PolicyNotSupported
from sandboxd_proto.manifest import manifest_to_dict
from sandboxd_proto.messages.execute import Base64Data, Detached, ExecuteParams

MAX_ARGUMENT = 128 * 1024 - 1  # the kernel's MAX_ARG_STRLEN


def execute(call: Call, params: ExecuteParams) -> Later | Detached:
    """Returns when the execution has its id: the client's next message may use it."""
    supervisor = call.service.supervisor
    request = _request(call, params)
    try:
        execution = supervisor.accept(request)
    except BaseException:
        request.passed.close()
        raise
    if params.detach:
        supervisor.detach(execution)
        return Detached(execution_id=execution.id)
    call.runs(execution)
    supervisor.begin(execution)
    return Later(lambda: supervisor.perform(execution))


def _request(call: Call, params: ExecuteParams) -> ExecuteRequest:
    received = call.descriptors() if params.fds is not None else ()
    taken = passed(params.fds, received) if params.fds is not None else NOTHING_PASSED
    try:
        return _checked(call, params, taken)
    except BaseException:
        taken.close()
        raise


def _checked(call: Call, params: ExecuteParams, taken: Passed) -> ExecuteRequest:
    _check_argv(params.argv)
    _check_later(params)
    plan = _plan(call, params)
    _check_passed(params, plan)
    return ExecuteRequest(
        argv=tuple(params.argv),
        plan=plan,
        owner=call.connection,
        stdin=_stdin(params),
        stdin_open=params.stdin_open,
        capture=not params.stream if params.capture is None else params.capture,
        pty=_pty(params),
        detach=params.detach,
        listener=ClientListener(call.connection.channel) if params.stream else None,
        execution_id=params.execution_id,
        sandbox=params.sandbox,
        passed=taken,
        explain=_asked(params, plan) if params.explain else None,
    )


def _asked(params: ExecuteParams, plan: Plan) -> Asked:
    manifest = manifest_to_dict(params.manifest) if params.manifest is not None else {}
    return Asked(manifest, plan.preset, plan.workspace)


def _plan(call: Call, params: ExecuteParams) -> Plan:
    if params.sandbox is None:
        return call.service.plans.plan_for(wish_of(params))
    for field in ("manifest", "preset", "workspace", "backend"):
        if getattr(params, field) is not None:
            raise InvalidParams(
                f"a command in an existing sandbox has no {field} of its own", field=field,
                remedy="give it to sandbox/create",
            )  # fmt: skip
    found = call.service.supervisor.sandboxes.find(params.sandbox).plan
    return moved(found, params.cwd) if params.cwd is not None else found


def _check_passed(params: ExecuteParams, plan: Plan) -> None:
    if params.fds is None:
        return
    if params.pty is not None:
        raise InvalidParams("fds and pty exclude each other", field="fds")
    if params.fds.stdin is not None and (params.stdin is not None or params.stdin_open):
        raise InvalidParams("fds.stdin and stdin exclude each other", field="fds.stdin")
    if plan.limits.output_bytes is not None and (
        params.fds.stdout is not None or params.fds.stderr is not None
    ):
        raise PolicyNotSupported(
            "output that goes to a passed descriptor cannot be counted", field="max_output_bytes",
            remedy="leave out fds or max_output_bytes",
        )  # fmt: skip


def _check_argv(argv: list[str]) -> None:
    if not argv or not argv[0]:
        raise InvalidParams(
            "argv names no program", field="argv", remedy='for example ["sh", "-c", "make test"]'
        )
    for index, argument in enumerate(argv):
        if "\0" in argument:
            raise InvalidParams("an argument has NUL in it", field=f"argv[{index}]")
        if len(argument.encode()) > MAX_ARGUMENT:
            raise InvalidParams(
                f"an argument is longer than {MAX_ARGUMENT} bytes, the kernel's limit",
                field=f"argv[{index}]", remedy="pass it through stdin or a file",
            )  # fmt: skip


def _check_later(params: ExecuteParams) -> None:
    """What the contract names and this daemon does not serve is refused, never ignored."""
    if params.session is not None:
        raise NotFound(f"there is no session {params.session!r}", field="session")


def _stdin(params: ExecuteParams) -> bytes:
    if isinstance(params.stdin, Base64Data):
        return decode_base64(params.stdin.base64, "stdin.base64")
    return (params.stdin or "").encode()


def _pty(params: ExecuteParams) -> PtyRequest | None:
    if params.pty is None:
        return None
    check_size(params.pty.rows, params.pty.cols, "pty.")
    return PtyRequest(params.pty.rows, params.pty.cols)


def check_size(rows: int, cols: int, prefix: str = "") -> None:
    for name, value in (("rows", rows), ("cols", cols)):
        if not 0 < value <= 65535:
            raise InvalidParams(f"{name} must be 1 to 65535", field=f"{prefix}{name}")
