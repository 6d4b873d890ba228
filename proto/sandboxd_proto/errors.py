"""Every error on the wire: its code, its kind, the field that it is about, and a remedy.

Daemon and clients raise the same classes: the daemon turns one into `{code, message, data}`, and a
client turns that back into the class of the same kind.
"""

from __future__ import annotations

from typing import Any, ClassVar


class SandboxdError(Exception):
    """An error with a stable code and kind, and a message that a person can act on."""

    code: ClassVar[int] = -32603
    kind: ClassVar[str] = "InternalError"

    def __init__(
        self, message: str, *, field: str | None = None, remedy: str | None = None, **facts: Any
    ) -> None:
        super().__init__(message)
        self.message = message
        self.field = field
        self.remedy = remedy
        self.facts = facts

    def __str__(self) -> str:
        return f"{self.message} ({self.remedy})" if self.remedy else self.message

    def data(self) -> dict[str, Any]:
        known = {"kind": self.kind, "field": self.field, "remedy": self.remedy}
        return {**{k: v for k, v in known.items() if v is not None}, **self.facts}


class ParseError(SandboxdError):
    code, kind = -32700, "ParseError"


class InvalidRequest(SandboxdError):
    code, kind = -32600, "InvalidRequest"


class MethodNotFound(SandboxdError):
    code, kind = -32601, "MethodNotFound"


class InvalidParams(SandboxdError):
    code, kind = -32602, "InvalidParams"


class ManifestInvalid(InvalidParams):
    code, kind = -32602, "ManifestInvalid"


class InternalError(SandboxdError):
    code, kind = -32603, "InternalError"


class SandboxUnavailable(SandboxdError):
    """No backend that is allowed here can bring a sandbox up. Nothing was run."""

    code, kind = -32001, "SandboxUnavailable"


class PolicyNotSupported(SandboxdError):
    """The backend cannot enforce what was asked for. Nothing was run."""

    code, kind = -32002, "PolicyNotSupported"


class PathDenied(SandboxdError):
    code, kind = -32003, "PathDenied"


class ExecFailed(SandboxdError):
    """The sandbox came up, the program could not be executed in it."""

    code, kind = -32004, "ExecFailed"


class NotFound(SandboxdError):
    code, kind = -32005, "NotFound"


class Unauthorized(SandboxdError):
    code, kind = -32006, "Unauthorized"


class BudgetExceeded(SandboxdError):
    code, kind = -32007, "BudgetExceeded"


class ApprovalDenied(SandboxdError):
    code, kind = -32008, "ApprovalDenied"


class Busy(SandboxdError):
    code, kind = -32009, "Busy"


class ShuttingDown(SandboxdError):
    code, kind = -32010, "ShuttingDown"


class CeilingExceeded(SandboxdError):
    """The daemon's own config forbids what was asked for."""

    code, kind = -32011, "CeilingExceeded"


class ApprovalPending(SandboxdError):
    """The request waits for an approval for longer than it may be held. Send it again later."""

    code, kind = -32012, "ApprovalPending"


class Conflict(SandboxdError):
    code, kind = -32013, "Conflict"


class FileError(SandboxdError):
    """A file operation in a sandbox failed; `errno` has the name of the kernel's error."""

    code, kind = -32014, "FileError"


ERRORS: tuple[type[SandboxdError], ...] = (
    ParseError, InvalidRequest, MethodNotFound, InvalidParams, ManifestInvalid, InternalError,
    SandboxUnavailable, PolicyNotSupported, PathDenied, ExecFailed, NotFound, Unauthorized,
    BudgetExceeded, ApprovalDenied, Busy, ShuttingDown, CeilingExceeded,
    ApprovalPending, Conflict, FileError,
)  # fmt: skip

BY_KIND = {error.kind: error for error in ERRORS}
BY_CODE = {error.code: error for error in reversed(ERRORS)}


def from_wire(code: int, message: str, data: Any) -> SandboxdError:
    """The exception that an error answer stands for; an unknown kind keeps its code's class."""
    facts = dict(data) if isinstance(data, dict) else {}
    kind, field, remedy = (_text(facts.pop(name, None)) for name in ("kind", "field", "remedy"))
    known = BY_KIND.get(kind) if kind else None
    built = (known or BY_CODE.get(code, SandboxdError))(message, field=field, remedy=remedy)
    built.facts = {str(key): value for key, value in facts.items()}
    return built


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
