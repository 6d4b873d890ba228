"""sandboxctl's own messages: always on stderr; an error has the lines error, cause, hint."""

from __future__ import annotations

import os

from sandboxd_client.cli.terminal import is_raw

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from sandboxd_client.cli.parse import Options

REFUSED, NOT_EXECUTABLE, NOT_FOUND = 125, 126, 127
_ENOENT, _EBADF = 2, 9


def say(text: str) -> None:
    write(f"sandboxctl: {text}\n")


def printable(text: str) -> str:
    """The daemon escapes what is hidden; a terminal gets nothing else than printable text."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def columns(fd: int = 1) -> int | None:
    """The width of the terminal that a descriptor leads to; None: it is none."""
    try:
        return os.get_terminal_size(fd).columns or None
    except OSError:
        return None


def say_denial(text: str) -> None:
    write(denial_line(text))


def denial_line(text: str) -> str:
    """A line about a denial; on a terminal the verdict has a colour (unless NO_COLOR is set)."""
    verdict, colon, rest = text.partition(":")
    colour = next((c for word, c in _COLOURS if verdict.startswith(word)), None)
    if colour is None or not _has_colours():
        return f"sandboxctl: {text}\n"
    return f"sandboxctl: \x1b[{colour}m{verdict}\x1b[0m{colon}{rest}\n"


_COLOURS = (("denied", "31"), ("perhaps", "33"), ("warning", "33"), ("to allow", "32"))


def _has_colours() -> bool:
    if os.environ.get("NO_COLOR") or os.environ.get("TERM", "dumb") == "dumb":
        return False
    try:
        return os.isatty(2)
    except OSError:
        return False


def for_stderr(text: str) -> bytes:
    """Every line of ours on stderr passes here: on a terminal in raw mode, which a command or
    another program has it in, a line needs a carriage return."""
    text = text.replace("\n", "\r\n") if is_raw(2) else text
    return text.encode(errors="backslashreplace")


def write(text: str) -> None:
    """Writes to descriptor 2 without a buffer; a closed stderr is ignored."""
    try:
        os.write(2, for_stderr(text))
    except OSError:
        return


def put(data: bytes) -> None:
    """Write all of it to stdout. BrokenPipeError: the reader has left."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(1, rest) :]


def fail(
    error: Exception, *, json: bool = False, usage_code: int = 2, options: Options | None = None
) -> int:
    """Say what failed, and answer the exit code. `options`: what was typed."""
    if not (json and _put_error(error)):
        write(_text(error, options))
    return exit_code(error, usage_code)


def _put_error(error: Exception) -> bool:
    """Whether stdout took it."""
    from sandboxd_client.jsontext import dumps

    try:
        put(dumps({"error": error_object(error)}) + b"\n")
    except BrokenPipeError:
        raise
    except OSError:
        return False
    return True


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
    from sandboxd_client.cli.wrong_input import is_wrong_value

    wrong = isinstance(error, UsageError) or is_wrong_value(error)
    return usage_code if wrong else REFUSED


def _text(error: Exception, options: Options | None) -> str:
    from sandboxd_client.cli.parse import UsageError

    if isinstance(error, UsageError):
        return _lines(error.message, None, error.hint)
    if not hasattr(error, "kind"):
        return _lines(_plain(error), None, None)
    from sandboxd_client.cli.wrong_input import not_found, reword

    message, field = getattr(error, "message", str(error)), getattr(error, "field", None)
    message, cause, hint = reword(message, field, getattr(error, "remedy", None), options)
    facts = getattr(error, "facts", {})
    if getattr(error, "kind", None) == "BudgetExceeded":
        from sandboxd_client.cli.budget_words import refused

        message, hint = refused(facts) or (message, hint)
    if hint and facts.get("flagged"):
        from sandboxd_client.cli.plan_words import hint as ending_plan_mode

        hint = ending_plan_mode(hint, facts["flagged"], options)
    if facts.get("message") and getattr(error, "kind", None) == "ApprovalDenied":
        from sandboxd_client.cli.plain_text import one_line

        cause, hint = f"the approver says: {one_line(str(facts['message']))}", None
    is_guessed = hint is not None and hint.startswith("did you mean")
    if (
        exit_code(error) == NOT_FOUND
        and options is not None
        and options.operands
        and not is_guessed
    ):
        from sandboxd_client.cli.workspace import shown_folders

        shown = shown_folders(options)
        hint = not_found(options, os.environ.get("PATH", ""), shown, message) or hint
    return _lines(message, facts.get("cause") or cause, hint)


def _plain(error: Exception) -> str:
    """An error of the system by its file and reason, any other with its type."""
    if isinstance(error, OSError) and error.strerror:
        if error.errno == _EBADF and not error.filename:
            return "the output could not be written: stdout is closed"
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror}"
    return f"{type(error).__name__}: {error}"


def _lines(message: str, cause: Any, hint: str | None) -> str:
    text = f"sandboxctl: error: {message}\n"
    if cause:
        text += f"  cause: {cause}\n"
    if hint:
        text += f"  hint:  {hint}\n"
    return text
