"""What can go wrong on the client's side of the socket. The daemon's own errors are proto's.

They share proto's base class, so one `except SandboxdError` catches all, and every one of them
has a message, a cause or remedy, and a stable `kind`.
"""

from __future__ import annotations

from sandboxd_proto.errors import SandboxdError


class DaemonNotRunning(SandboxdError):
    """Nothing listens on the socket, and nothing was started (or what was started failed)."""

    code, kind = -32097, "DaemonNotRunning"


class ConnectionLost(SandboxdError):
    """The connection ended before the answer came. Whether the command ran is not known."""

    code, kind = -32098, "ConnectionLost"


class ServerNotTrusted(SandboxdError):
    """Somebody else owns the socket, its folder or the process behind it. Nothing was sent."""

    code, kind = -32099, "ServerNotTrusted"


class Unread(SandboxdError):
    """The caller waits for an answer behind more output than it lets the client keep unread."""

    code, kind = -32096, "Unread"
