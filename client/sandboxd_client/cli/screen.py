"""sandboxctl's own words: always on stderr, each line of an error as error, cause, hint."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

REFUSED, NOT_EXECUTABLE, NOT_FOUND = 125, 126, 127
_ENOENT = 2


def say(text: str) -> None:
    write(f"sandboxctl: {text}\n")


def write(text: str) -> None:
    """Straight to descriptor 2: nothing is buffered, and a closed stderr is nobody's problem."""
    try:
        os.write(2, text.encode(errors="backslashreplace"))
    except OSError:
        return


def put(data: bytes) -> None:
    """All of it to stdout. BrokenPipeError: whoever read it is gone."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(1, rest) :]


def fail(error: Exception, *, json: bool = False, usage_code: int = 2) -> int:
    """Say what failed, and answer the exit code."""
    if json:
        from sandboxd_client.jsontext import dumps

        put(dumps({"error": error_object(error)}) + b"\n")
    else:
        write(_text(error))
    return exit_code(error, usage_code)


def error_object(error: Any) -> dict[str, Any]:
    """The same fields as on the wire, also for what was refused before anything was sent."""
    if hasattr(error, "data"):
        return {"code": error.code, "message": error.message, "data": error.data()}
    remedy = {"remedy": error.hint} if hasattr(error, "hint") else {}
    return {"code": -32602, "message": str(error), "data": {"kind": "InvalidParams", **remedy}}


def exit_code(error: Exception, usage_code: int = 2) -> int:
    from sandboxd_client.cli.parse import UsageError

    if getattr(error, "kind", None) == "ExecFailed":
        number = getattr(error, "facts", {}).get("errno")
        return NOT_FOUND if number == _ENOENT else NOT_EXECUTABLE
    return usage_code if isinstance(error, UsageError) else REFUSED


def _text(error: Exception) -> str:
    from sandboxd_client.cli.parse import UsageError

    if isinstance(error, UsageError):
        return _lines(error.message, None, error.hint)
    if hasattr(error, "kind"):
        facts = getattr(error, "facts", {})
        field = getattr(error, "field", None)
        cause = facts.get("cause") or (f"the field is {field}" if field else None)
        return _lines(str(error), cause, getattr(error, "remedy", None))
    return _lines(f"{type(error).__name__}: {error}", None, None)


def _lines(message: str, cause: Any, hint: str | None) -> str:
    text = f"sandboxctl: error: {message}\n"
    if cause:
        text += f"  cause: {cause}\n"
    if hint:
        text += f"  hint:  {hint}\n"
    return text
