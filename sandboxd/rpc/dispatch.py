"""One JSON-RPC request to its handler and its answer, through jsonrpcserver.

msgspec decodes and validates, so jsonrpcserver's own (de)serializer and its jsonschema validator
(about 200 µs a call) are left out, and so is its look at the signature: every method here takes any
names, which msgspec checks against the contract.

Handlers are plain functions, so that most requests are answered where they were read. One that has
to wait returns `Later`, and only that gets a task.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeVar

import msgspec
from jsonrpcserver import JsonRpcError, Success
from jsonrpcserver.dispatcher import call as call_method
from jsonrpcserver.dispatcher import to_response
from jsonrpcserver.request import Request as PlainRequest
from jsonrpcserver.response import to_serializable
from jsonrpcserver.sentinels import NOID
from oslash.either import Right

from sandboxd.rpc.call import Call
from sandboxd_proto import methods
from sandboxd_proto.errors import (
    InternalError,
    InvalidParams,
    InvalidRequest,
    ManifestInvalid,
    MethodNotFound,
    SandboxdError,
)
from sandboxd_proto.wire import convert

log = logging.getLogger(__name__)

Handler = Callable[[Call, Any], Any]
P = TypeVar("P")


@dataclass(frozen=True, slots=True)
class Later:
    """The rest of a request: whoever gets it awaits it in a task of its own."""

    work: Callable[[], Awaitable[Any]]


def later(handler: Callable[[Call, P], Awaitable[Any]]) -> Callable[[Call, P], Later]:
    """For a handler that has to wait."""

    @wraps(handler)
    def started(call: Call, params: P) -> Later:
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
    """The id of a broken request, so that its sender does not wait forever."""
    found = value.get("id") if isinstance(value, dict) else None
    return found if isinstance(found, str | int | float) and not isinstance(found, bool) else None


class Dispatcher:
    def __init__(self, handlers: Mapping[str, Handler]) -> None:
        missing = set(methods.BY_NAME) ^ set(handlers)
        if missing:
            raise RuntimeError(f"methods and handlers differ: {sorted(missing)}")
        self._methods = {name: _wrapped(methods.BY_NAME[name], h) for name, h in handlers.items()}

    def answer(self, request: Request, call: Call) -> Any:
        """The answer object, None for a notification; or Later, to be given to `finish`."""
        is_notification = request.id is msgspec.UNSET
        try:
            self._check(request)
        except SandboxdError as error:
            return None if is_notification else failure(request.id, error)
        if is_notification and methods.BY_NAME[request.method].runs:
            return None
        identity = NOID if is_notification else request.id
        plain = PlainRequest(request.method, request.params or {}, identity)
        done = call_method(plain, call, self._methods[request.method])
        if isinstance(done, Right) and isinstance(done._value.result, Later):
            return done._value.result
        return None if is_notification else to_serializable(to_response(plain, done))

    async def finish(self, request: Request, rest: Later) -> Any:
        """The answer object; None for a notification."""
        try:
            result = await rest.work()
        except SandboxdError as error:
            answer = failure(request.id, error)
        except Exception:
            answer = failure(request.id, _broken(request.method))
        else:
            answer = {"jsonrpc": "2.0", "result": result, "id": request.id}
        return None if request.id is msgspec.UNSET else answer

    def _check(self, request: Request) -> None:
        if request.method not in self._methods:
            raise MethodNotFound(
                f"there is no method {request.method!r}", remedy="`rpc.discover` lists them"
            )
        if isinstance(request.params, list):
            raise InvalidParams(
                "params must be an object with named fields, not a list", field="params"
            )


def _wrapped(method: methods.Method, handler: Handler) -> Callable[..., Any]:
    def call_handler(call: Call, /, **params: Any) -> Any:
        try:
            return Success(handler(call, _typed(method, params)))
        except SandboxdError as error:
            raise JsonRpcError(error.code, error.message, error.data()) from None
        except Exception:
            broken = _broken(method.name)
            raise JsonRpcError(broken.code, broken.message, broken.data()) from None

    return call_handler


def _broken(name: str) -> InternalError:
    """For a mistake of ours: the log has it, the client learns that there is one."""
    log.exception("%s failed", name)
    return InternalError("the daemon failed inside; its log says more")


def _typed(method: methods.Method, params: dict[str, Any]) -> Any:
    try:
        return convert(params, method.params)
    except InvalidParams as error:
        field = error.field or ""
        if not field.startswith(("manifest.", "manifest[")):
            raise
        inner = field.removeprefix("manifest").lstrip(".")
        raise ManifestInvalid(
            f"the manifest is not valid: {error.message}", field=inner or "manifest"
        ) from None


def failure(request_id: Any, error: SandboxdError) -> dict[str, Any]:
    body = {"code": error.code, "message": error.message, "data": error.data()}
    return {"jsonrpc": "2.0", "id": request_id, "error": body}
