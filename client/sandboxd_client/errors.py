"""Errors of the client's side of the socket. Errors of the daemon are defined in proto.

They share proto's base class, so one `except SandboxdError` catches all, and every one of them
has a message, a cause or remedy, and a stable `kind`.
"""

from __future__ import annotations

from sandboxd_proto.errors import SandboxdError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sandboxd_proto.messages.execute import ExecuteResult


class DaemonNotRunning(SandboxdError):
    """Nothing listens on the socket, and nothing was started (or what was started failed)."""

    code, kind = -32097, "DaemonNotRunning"


class ConnectionLost(SandboxdError):
    """The connection ended before the answer came. Whether the command ran is not known."""

    code, kind = -32098, "ConnectionLost"


class ServerNotTrusted(SandboxdError):
    """Another user owns the socket, its folder or the listening process. Nothing was sent."""

    code, kind = -32099, "ServerNotTrusted"


class Unread(SandboxdError):
    """The awaited answer is behind more unread output than `unread_limit` allows."""

    code, kind = -32096, "Unread"


class CommandTimeout(TimeoutError):
    """A command ran longer than its timeout; `result` has its partial output."""

    def __init__(self, result: ExecuteResult) -> None:
        said = [denial.message for denial in result.denials if denial.kind == "timeout"]
        why = said[0] if said else "the command was ended by its timeout"
        super().__init__(f'{why}; timeout= gives it another (seconds, "5m" or "none")')
        self.result = result
