"""The stdin of an `execute`: in the request if it is small, else written after it in pieces."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from sandboxd_client import payload
from sandboxd_client.ids import new_id

if TYPE_CHECKING:
    from sandboxd_client.calls import MethodCall

R = TypeVar("R")
PIECE = 1024 * 1024


def with_input(call: MethodCall[R], data: str | bytes) -> MethodCall[R]:
    """A request has a limit of 16 MiB; input has none."""
    if not isinstance(data, str | bytes):
        raise TypeError(f"stdin is {data!r}: give text or bytes")
    if len(data) <= PIECE:
        stdin = data if isinstance(data, str) else {"base64": payload.base64(data)}
        return call._replace(params={**call.params, "stdin": stdin})
    params = {"execution_id": new_id(), **call.params, "stdin_open": True}
    return call._replace(params=params, input=payload.encode(data))


def input_pieces(call: MethodCall[Any]) -> Iterator[MethodCall[Any]]:
    """The calls that write its input and end it."""
    execution = {"execution_id": call.params["execution_id"]}
    plain = call._replace(result=Any, passed=(), input=b"")
    for at in range(0, len(call.input), PIECE):
        piece = payload.base64(call.input[at : at + PIECE])
        yield plain._replace(method="execution/write", params={**execution, "base64": piece})
    yield plain._replace(method="execution/close_stdin", params=execution)
