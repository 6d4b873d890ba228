"""`execution/*`: control a command while it runs."""

from __future__ import annotations

import math

import anyio

from sandboxd.platform.current import commands
from sandboxd.rpc.dispatch import later
from sandboxd.rpc.handlers.execute import check_size
from sandboxd.rpc.notifications.attached_output import send_output_log
from sandboxd.rpc.request_context import RequestContext
from sandboxd.supervisor.execution.execution import Execution
from sandboxd.supervisor.execution.output_log import OutputLog
from sandboxd.supervisor.execution.stdio.text import decode_base64
from sandboxd_proto.errors import InternalError, InvalidParams
from sandboxd_proto.messages.execute import ExecuteResult, StreamName
from sandboxd_proto.messages.execution import (
    Attached,
    AttachParams,
    ExecutionInfo,
    ExecutionList,
    ExecutionListParams,
    ExecutionRef,
    ExecutionStatus,
    Nothing,
    ResizeParams,
    SignalParams,
    WaitParams,
    WriteParams,
)

NOTHING = Nothing()


def _find(call: RequestContext, execution_id: str) -> Execution:
    return call.service.supervisor.executions.find(execution_id, call.reader)


@later
async def write(call: RequestContext, params: WriteParams) -> Nothing:
    if (params.data is None) == (params.base64 is None):
        raise InvalidParams("give either data or base64", field="data")
    if params.base64 is not None:
        data = decode_base64(params.base64, "base64")
    else:
        data = (params.data or "").encode()
    await _find(call, params.execution_id).control.write(data)
    return NOTHING


@later
async def close_stdin(call: RequestContext, params: ExecutionRef) -> Nothing:
    await _find(call, params.execution_id).control.close_stdin()
    return NOTHING


def signal(call: RequestContext, params: SignalParams) -> Nothing:
    number = _number(params.signal)
    _find(call, params.execution_id).control.send_signal(number)
    return NOTHING


def _number(given: int | str) -> int:
    found = commands.signal_number(given)
    if found is None:
        raise InvalidParams(
            f"there is no signal {given!r}", field="signal", remedy=commands.SIGNALS_HELP
        )
    return found


def resize(call: RequestContext, params: ResizeParams) -> Nothing:
    check_size(params.rows, params.cols)
    _find(call, params.execution_id).control.resize(params.rows, params.cols)
    return NOTHING


def cancel(call: RequestContext, params: ExecutionRef) -> Nothing:
    _find(call, params.execution_id).cancel()
    return NOTHING


def list_(call: RequestContext, params: ExecutionListParams) -> ExecutionList:
    usable = call.service.supervisor.executions.usable(call.reader, ended=params.ended)
    return ExecutionList(executions=[_info(execution) for execution in usable])


def _info(execution: Execution) -> ExecutionInfo:
    result = execution.result if execution.state == "ended" else None
    return ExecutionInfo(
        execution_id=execution.id,
        argv=list(execution.request.argv),
        backend=execution.backend,
        started_ms=round(execution.started_at * 1000, 3),
        sandbox=execution.sandbox_id,
        detached=execution.request.detach,
        state=execution.state,
        outcome=result.outcome if result is not None else None,
        exit_code=result.exit_code if result is not None else None,
        signal=result.signal if result is not None else None,
        watched=execution.request.plan.sandbox.watched,
    )


@later
async def wait(call: RequestContext, params: WaitParams) -> ExecuteResult | ExecutionStatus:
    executions = call.service.supervisor.executions
    execution = executions.find_or_ended(params.execution_id, call.reader)
    limit_s = params.timeout_secs
    check_timeout(limit_s)
    with anyio.move_on_after(limit_s):
        await execution.finished()
        return _result(execution)
    return ExecutionStatus(state=execution.state)


def check_timeout(limit_s: float | None) -> None:
    """Of a request that waits."""
    if limit_s is not None and not 0 <= limit_s < math.inf:
        raise InvalidParams(
            "timeout_secs must not be negative", field="timeout_secs",
            remedy="leave it out to wait without a limit",
        )  # fmt: skip


def _result(execution: Execution) -> ExecuteResult:
    if execution.error is not None:
        raise execution.error
    if execution.result is None:
        raise InternalError("the execution ended without a result")
    return execution.result


def status(call: RequestContext, params: ExecutionRef) -> ExecutionStatus:
    executions = call.service.supervisor.executions
    execution = executions.find_or_ended(params.execution_id, call.reader)
    request = execution.request
    return ExecutionStatus(
        state=execution.state,
        result=_result(execution) if execution.state == "ended" else None,
        pty=request.pty is not None,
        stdin_open=request.stdin_open or request.pty is not None,
        job_control=execution.control.has_own_jobs,
    )


def attach(call: RequestContext, params: AttachParams) -> Attached:
    executions = call.service.supervisor.executions
    execution = executions.find_or_ended(params.execution_id, call.reader)
    request = execution.request
    output = request.listener
    if not isinstance(output, OutputLog):
        raise InvalidParams(
            "only a detached execution can be attached to", field="execution_id",
            remedy='start it with "detach": true',
        )  # fmt: skip
    takes_input = request.stdin_open or request.pty is not None
    if params.stdin and not takes_input:
        raise InvalidParams(
            "the stdin of this execution was not left open", field="stdin",
            remedy='start it with "stdin_open": true',
        )  # fmt: skip
    after: dict[StreamName, int] = {"stdout": -1, "stderr": -1}
    if params.after is not None:
        after = {"stdout": max(params.after.stdout, -1), "stderr": max(params.after.stderr, -1)}
    send = call.connection.send_notice
    call.connection.follow(lambda: send_output_log(output, after, send), call)
    return Attached(
        state=execution.state,
        gap=any(output.lacks(stream, seq) for stream, seq in after.items()),
        pty=request.pty is not None,
        stdin_open=takes_input,
        next_seq={stream: output.next_seq(stream) for stream in after},
    )
