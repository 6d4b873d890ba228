"""Connect to the daemon; start one if none listens, replace one of another version if it is idle.

Concurrent clients start one daemon: the client that holds the lock file starts it, the others find
it listening when they get the lock. The usual case, a daemon of our version, costs one connect and
one request; everything else is in `start_daemon`, which is imported only when needed.
"""

from __future__ import annotations

import os
import time

from sandboxd_client import __version__, handshake, transport

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket
    from collections.abc import Callable

RETRY_LIMIT_S = 20.0


def begin_connection(path: str, client: str) -> socket | None:
    """Connect and send `initialize`: while the daemon answers, the caller can do something else.
    None: that failed, and `open_connection` says why or starts a daemon."""
    try:
        sock = transport.connect(path)
    except Exception:
        return None
    try:
        handshake.send_initialize(sock, client)
    except Exception:
        sock.close()
        return None
    return sock


def open_connection(
    path: str,
    *,
    client: str,
    begun: socket | None = None,
    may_start: bool = True,
    note: Callable[[str], None] = lambda text: None,
    started: Callable[[], None] = lambda: None,
) -> socket:
    """A connection to a daemon that has answered `initialize`. `begun`: of `begin_connection`, if
    that was called. `started`: called if the daemon had to be started."""
    deadline = time.monotonic() + RETRY_LIMIT_S
    may_replace = may_start
    while True:
        sock = begun or _connect(path, may_start=may_start, started=started)
        try:
            if begun is None:
                handshake.send_initialize(sock, client)
            if _current(sock, note) or not may_replace or not _replace(sock, path, note):
                return sock
            may_replace = False  # the new one is what is installed, whatever its version
        except Exception as error:
            sock.close()
            # A daemon that is just ending (idle, or told to) answers like this; the next will not.
            if not may_start or not _ending(error) or time.monotonic() > deadline:
                raise
        sock.close()
        begun = None
        time.sleep(0.02)


def _connect(path: str, *, may_start: bool, started: Callable[[], None]) -> socket:
    try:
        return transport.connect(path)
    except Exception as error:
        if not may_start or not nobody_there(error):
            raise
    from sandboxd_client import start_daemon

    start_daemon.start(path)
    started()
    return transport.connect(path)


def _current(sock: socket, note: Callable[[str], None]) -> bool:
    answer = handshake.initialized(sock)
    for warning in answer.get("warnings") or ():
        note(f"warning: {warning}")
    mine = [name for name in os.environ if name.startswith("SANDBOXD_")]
    if mine:
        from sandboxd_client.ignored_variables import ignored_variables

        for warning in ignored_variables(os.environ, answer):
            note(f"warning: {warning}")
    server = answer.get("server")
    return isinstance(server, dict) and server.get("version") == __version__


def _replace(sock: socket, path: str, note: Callable[[str], None]) -> bool:
    """End a daemon of another version if it is idle; False: it stays, use it."""
    status = handshake.ask(sock, "status")
    if status.get("executions") or status.get("clients", 1) > 1:
        note(
            f"the running daemon has version {status.get('version')}, this is {__version__}; "
            "it is replaced when it is idle"
        )
        return False
    from sandboxd_client import start_daemon

    start_daemon.stop(sock, path)
    return True


def nobody_there(error: Exception) -> bool:
    """Whether nothing listens, and a daemon can be started there."""
    from errno import ECONNREFUSED, ENOENT

    return getattr(error, "facts", {}).get("errno") in (ECONNREFUSED, ENOENT)


def _ending(error: Exception) -> bool:
    return getattr(error, "kind", None) in ("ConnectionLost", "ShuttingDown")
