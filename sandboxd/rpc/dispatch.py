"""One JSON-RPC request to its handler and its answer, through jsonrpcserver.

msgspec decodes and validates, so jsonrpcserver's own (de)serializer and its jsonschema validator
(about 200 µs a call) are replaced with functions that do nothing. Every method takes any names,
which msgspec checks against the contract.

Handlers are plain functions, so that most requests are answered where they were read. One that has
to wait returns `Later`, and only that gets a task.

`execute` is called without jsonrpcserver, whose hundred calls in a dozen modules take a twentieth
of a short command when the processor's caches are cold.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from inspect import BoundArguments, Signature
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from sandboxd.resource_errors import resource_error
from sandboxd.rpc.jsonrpc_library import JsonRpcError, Success, dispatch_to_serializable
from sandboxd.rpc.request_context import RequestContext
from sandboxd_proto import methods
from sandboxd_proto.errors import (
    InternalError,
    InvalidParams,
    InvalidRequest,
    ManifestInvalid,
    MethodNotFound,
    SandboxdError,
    Unauthorized,
)
from sandboxd_proto.lenient import understood
from sandboxd_proto.wire import convert
from sandboxd_proto.wording import nearest, shortened

if TYPE_CHECKING:
    from sandboxd.rpc.connection import Connection

log = logging.getLogger(__name__)

_EXECUTE = methods.BY_NAME["execute"]

Handler = Callable[[RequestContext, Any], Any]
P = TypeVar("P")


class Later(msgspec.Struct, frozen=True):
    """The part of a request that waits; the caller awaits it in a task. `ends_with_execution`: it
    ends soon after its execution was cancelled, and need not be cancelled itself."""

    work: Callable[[], Awaitable[Any]]
    ends_with_execution: bool = False


class RunAgain(msgspec.Struct, frozen=True):
    """The request cannot be handled yet: its handler is called again after `wait`. Later requests
    of the connection wait for it."""

    wait: Callable[[], Awaitable[None]]


def later(
    handler: Callable[[RequestContext, P], Awaitable[Any]],
) -> Callable[[RequestContext, P], Later]:
    """For a handler that has to wait."""

    @wraps(handler)
    def started(call: RequestContext, params: P) -> Later:
        return Later(lambda: handler(call, params))

    return started


class Request(msgspec.Struct, frozen=True):
    """The envelope. Unknown members are allowed here, as JSON-RPC does."""

    jsonrpc: str
    method: str
    params: dict[str, Any] | list[Any] | None = None
    id: str | int | float | msgspec.UnsetType | None = msgspec.UNSET


def read_request(value: Any) -> Request:
    """InvalidRequest carries the id, where one can be read, as its fact `id`."""
    try:
        request = msgspec.convert(value, Request)
        if request.jsonrpc == "2.0":
            return request
        problem = f'"jsonrpc" must be "2.0", and not {request.jsonrpc!r}'
    except msgspec.ValidationError as error:
        problem = str(error)
    raise InvalidRequest(f"this is not a JSON-RPC 2.0 request: {problem}")


def readable_id(value: Any) -> Any:
    """The id of a malformed request, so that its sender gets the error."""
    found = value.get("id") if isinstance(value, dict) else None
    return found if isinstance(found, str | int | float) and not isinstance(found, bool) else None


@dataclass(slots=True)
class _Call:
    """`rest`: the Later of a handler, which jsonrpcserver cannot return."""

    context: RequestContext
    rest: Later | RunAgain | None = None


def _as_it_is(value: Any) -> Any:
    return value


class _AnyNames(Signature):
    """jsonrpcserver binds the parameters before each call, which takes three times as long as the
    rest of its work. Every handler takes any names: the contract says which are right."""

    def bind(self, *args: Any, **kwargs: Any) -> BoundArguments:
        return _NOTHING_BOUND


_NOTHING_BOUND = BoundArguments(Signature(), OrderedDict())


class Dispatcher:
    def __init__(self, handlers: Mapping[str, Handler]) -> None:
        missing = set(methods.BY_NAME) ^ set(handlers)
        if missing:
            raise RuntimeError(
                "the methods of sandboxd_proto/methods.py and the handlers of "
                f"sandboxd/rpc/handlers/table.py differ: {sorted(missing)}"
            )
        self._methods = {name: _wrapped(methods.BY_NAME[name], h) for name, h in handlers.items()}
        self._execute = handlers["execute"]

    def answer(self, request: Request, call: RequestContext) -> Any:
        """The answer object, None for a notification; Later, for `finish`; or RunAgain."""
        is_notification = request.id is msgspec.UNSET
        try:
            self._check(request, call)
        except SandboxdError as error:
            return None if is_notification else failure(request.id, error)
        if is_notification and methods.BY_NAME[request.method].runs:
            return None
        if request.method == "execute":
            return self._answer_execute(request, call)
        plain: dict[str, Any] = {"method": request.method, "params": request.params or {}}
        if not is_notification:
            plain["id"] = request.id
        current = _Call(call)
        answer = dispatch_to_serializable(
            plain, self._methods, context=current, deserializer=_as_it_is, validator=_as_it_is
        )
        return answer if current.rest is None else current.rest

    def _answer_execute(self, request: Request, call: RequestContext) -> Any:
        params: Any = request.params or {}
        try:
            result = self._execute(call, _typed(_EXECUTE, params))
        except Exception as error:
            return failure(request.id, _known_error(request.method, error))
        return result if isinstance(result, Later | RunAgain) else _success(request.id, result)

    async def finish(self, request: Request, rest: Later) -> Any:
        """The answer object; None for a notification."""
        try:
            answer = _success(request.id, await rest.work())
        except Exception as error:
            answer = failure(request.id, _known_error(request.method, error))
        return None if request.id is msgspec.UNSET else answer

    def _check(self, request: Request, call: RequestContext) -> None:
        if request.method not in self._methods:
            near = nearest(request.method, self._methods)
            raise MethodNotFound(
                f"there is no method {shortened(request.method)!r}",
                remedy=f"did you mean {near}?" if near else "`rpc.discover` lists them",
            )
        method = methods.BY_NAME[request.method]
        if method.role != call.connection.role:
            _check_role(method, call.connection)
        if isinstance(request.params, list):
            raise InvalidParams(
                "params must be an object with named fields, not a list", field="params"
            )


def _check_role(method: methods.Method, connection: Connection) -> None:
    """Approver and worker exclude each other on one connection."""
    if method.role is None or connection.role == method.role:
        return
    if connection.role is None and method.role == "worker":
        connection.role = "worker"
        return
    needed = "subscribes as approver first" if method.role == "approver" else "is no approver"
    raise Unauthorized(
        f"{method.name} is for a connection that {needed}", reason="role",
        remedy="use a second connection",
    )  # fmt: skip


def _wrapped(method: methods.Method, handler: Handler) -> Callable[..., Any]:
    def call_handler(call: _Call, /, **params: Any) -> Any:
        try:
            result = handler(call.context, _typed(method, params))
            if isinstance(result, Later | RunAgain):
                call.rest, result = result, None
            return Success(result)
        except Exception as error:
            known = _known_error(method.name, error)
            raise JsonRpcError(known.code, known.message, known.data()) from None

    call_handler.__signature__ = _AnyNames()  # type: ignore[attr-defined]
    return call_handler


def _known_error(name: str, error: Exception) -> SandboxdError:
    """What the client gets; an exception that no handler expects is logged."""
    if isinstance(error, SandboxdError):
        return error
    busy = resource_error(error)
    if busy is not None:
        log.warning("%s failed: %s", name, error)
        return busy
    log.exception("%s failed", name)
    return InternalError("internal error; see the daemon's log")


def _typed(method: methods.Method, params: dict[str, Any]) -> Any:
    try:
        return convert(params, method.params)
    except InvalidParams:
        if "manifest" in params:
            params = {**params, "manifest": understood(params["manifest"])}
    try:
        return convert(params, method.params)
    except InvalidParams as error:
        field = error.field or ""
        if not field.startswith(("manifest.", "manifest[")):
            raise
        inner = field.removeprefix("manifest").lstrip(".")
        raise ManifestInvalid(
            error.message, field=inner or "manifest", remedy=error.remedy
        ) from None


def _success(request_id: Any, result: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "result": result, "id": request_id}


def failure(request_id: Any, error: SandboxdError) -> dict[str, Any]:
    body = {"code": error.code, "message": error.message, "data": error.data()}
    return {"jsonrpc": "2.0", "id": request_id, "error": body}
