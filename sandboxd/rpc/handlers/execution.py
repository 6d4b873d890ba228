"""`execution/*`: talk to a command while it runs."""

from __future__ import annotations

import signal as signals

from sandboxd.rpc.call import Call
from sandboxd.rpc.dispatch import later
from sandboxd.rpc.handlers.execute import check_size
from sandboxd.supervisor.execution import Execution
from sandboxd.supervisor.text import decode_base64
from sandboxd_proto.errors import InternalError, InvalidParams
from sandboxd_proto.messages.execute import ExecuteResult
from sandboxd_proto.messages.execution import (
    ExecutionInfo,
    ExecutionList,
    ExecutionRef,
    NoParams,
    Nothing,
    ResizeParams,
    SignalParams,
    WriteParams,
)

NOTHING = Nothing()
_BY_NAME = {s.name: s.value for s in signals.Signals}


def _find(call: Call, execution_id: str) -> Execution:
    return call.service.supervisor.executions.find(execution_id, call.connection)


@later
async def write(call: Call, params: WriteParams) -> Nothing:
    if (params.data is None) == (params.base64 is None):
        raise InvalidParams("give either data or base64", field="data")
    if params.base64 is not None:
        data = decode_base64(params.base64, "base64")
    else:
        data = (params.data or "").encode()
    await _find(call, params.execution_id).write(data)
    return NOTHING


@later
async def close_stdin(call: Call, params: ExecutionRef) -> Nothing:
    await _find(call, params.execution_id).close_stdin()
    return NOTHING


def signal(call: Call, params: SignalParams) -> Nothing:
    number = _number(params.signal)
    _find(call, params.execution_id).send_signal(number)
    return NOTHING


def _number(given: int | str) -> int:
    if isinstance(given, str):
        name = given.upper()
        found = _BY_NAME.get(name) or _BY_NAME.get(f"SIG{name}")
        if found is None:
            raise InvalidParams(
                f"there is no signal {given!r}", field="signal", remedy='for example "SIGINT" or 2'
            )
        return found
    if not 0 < given <= 64:
        raise InvalidParams("a signal is a number from 1 to 64, or a name", field="signal")
    return given


def resize(call: Call, params: ResizeParams) -> Nothing:
    check_size(params.rows, params.cols)
    _find(call, params.execution_id).resize(params.rows, params.cols)
    return NOTHING


def cancel(call: Call, params: ExecutionRef) -> Nothing:
    _find(call, params.execution_id).cancel()
    return NOTHING


def list_(call: Call, params: NoParams) -> ExecutionList:
    usable = call.service.supervisor.executions.usable(call.connection)
    return ExecutionList(
        executions=[
            ExecutionInfo(
                execution_id=e.id,
                argv=list(e.request.argv),
                backend=e.backend,
                started_ms=round(e.started_at * 1000, 3),
                sandbox=e.sandbox_id,
                detached=e.request.detach,
            )
            for e in usable
        ]
    )


@later
async def wait(call: Call, params: ExecutionRef) -> ExecuteResult:
    executions = call.service.supervisor.executions
    execution = executions.find_or_ended(params.execution_id, call.connection)
    await execution.finished()
    if execution.error is not None:
        raise execution.error
    if execution.result is None:
        raise InternalError("the execution ended without a result")
    return execution.result
