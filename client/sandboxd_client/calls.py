"""What each method of the daemon is sent and what it answers, for both clients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from sandboxd_client import __version__
from sandboxd_client.large_input import with_input
from sandboxd_client.options import (
    CheckOptions,
    ExecuteOptions,
    SandboxOptions,
    Word,
    check_names,
    execute_params,
    passed_descriptors,
    policy_params,
    write_params,
)
from sandboxd_proto.messages.execute import Detached, ExecuteResult
from sandboxd_proto.messages.execution import ExecutionList, ExecutionStatus
from sandboxd_proto.messages.sandbox import Forwarded, SandboxCreated, SandboxList
from sandboxd_proto.messages.server import CheckResult, InitializeResult, StatusResult

R = TypeVar("R")


class MethodCall(NamedTuple, Generic[R]):
    """`result`: what the answer is decoded as. `passed`: descriptors that go with it. `input`: the
    stdin of an `execute` that is written after it, in pieces."""

    method: str
    params: Any
    result: type[R] | Any
    passed: Sequence[int] = ()
    input: bytes = b""


Unanswered = MethodCall[None]


def initialize(name: str) -> MethodCall[InitializeResult]:
    params = {"client": {"name": name, "version": __version__}}
    return MethodCall("initialize", params, InitializeResult)


def status() -> MethodCall[StatusResult]:
    return MethodCall("status", {}, StatusResult)


def execute(argv: Sequence[Word], options: ExecuteOptions) -> MethodCall[ExecuteResult]:
    params = execute_params(argv, {**options, "stdin": None})
    passed = passed_descriptors(options)
    call = MethodCall[ExecuteResult]("execute", params, ExecuteResult, passed)
    stdin = options.get("stdin")
    return call if stdin is None else with_input(call, stdin)


def start(argv: Sequence[Word], options: ExecuteOptions) -> MethodCall[Detached]:
    params = {**execute_params(argv, options, "start"), "detach": True}
    return MethodCall("execute", params, Detached, passed_descriptors(options))


def execution_wait(execution_id: str) -> MethodCall[ExecuteResult]:
    return MethodCall("execution/wait", {"execution_id": execution_id}, ExecuteResult)


def execution_status(execution_id: str) -> MethodCall[ExecutionStatus]:
    return MethodCall("execution/status", {"execution_id": execution_id}, ExecutionStatus)


def execution_list(*, ended: bool) -> MethodCall[ExecutionList]:
    return MethodCall("execution/list", {"ended": True} if ended else {}, ExecutionList)


def execution_write(execution_id: str, data: str | bytes) -> Unanswered:
    return MethodCall("execution/write", write_params(execution_id, data), Any)


def execution_close_stdin(execution_id: str) -> Unanswered:
    return MethodCall("execution/close_stdin", {"execution_id": execution_id}, Any)


def execution_signal(execution_id: str, signal: int | str) -> Unanswered:
    return MethodCall("execution/signal", {"execution_id": execution_id, "signal": signal}, Any)


def execution_resize(execution_id: str, rows: int, cols: int) -> Unanswered:
    params = {"execution_id": execution_id, "rows": rows, "cols": cols}
    return MethodCall("execution/resize", params, Any)


def execution_cancel(execution_id: str) -> Unanswered:
    return MethodCall("execution/cancel", {"execution_id": execution_id}, Any)


def check(options: CheckOptions) -> MethodCall[CheckResult]:
    check_names("check", options, CheckOptions)
    return MethodCall("manifest/check", policy_params(options), CheckResult)


def sandbox_create(options: SandboxOptions) -> MethodCall[SandboxCreated]:
    check_names("sandbox_create", options, SandboxOptions)
    return MethodCall("sandbox/create", policy_params(options), SandboxCreated)


def sandbox_list() -> MethodCall[SandboxList]:
    return MethodCall("sandbox/list", {}, SandboxList)


def sandbox_destroy(sandbox: str) -> Unanswered:
    return MethodCall("sandbox/destroy", {"sandbox": sandbox}, Any)


def sandbox_forward(
    sandbox: str, port: int, listen: Literal["unix", "tcp"]
) -> MethodCall[Forwarded]:
    params = {"sandbox": sandbox, "port": port, "listen": listen}
    return MethodCall("sandbox/forward", params, Forwarded)


def sandbox_unforward(sandbox: str, forward: str) -> Unanswered:
    return MethodCall("sandbox/unforward", {"sandbox": sandbox, "forward": forward}, Any)


def discover() -> MethodCall[dict[str, Any]]:
    return MethodCall("rpc.discover", {}, dict[str, Any])


def shutdown() -> Unanswered:
    return MethodCall("shutdown", {}, Any)
