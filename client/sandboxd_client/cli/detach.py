"""`sandboxctl run --detach`: print a command's ID once it has started, and leave it running."""

from __future__ import annotations

import os
import sys
from errno import EBADF

from sandboxd_client.cli.join_session import join_session
from sandboxd_client.cli.parse import Options, UsageError
from sandboxd_client.cli.prefix import find_sandbox
from sandboxd_client.cli.request import in_sandbox, policy
from sandboxd_client.cli.screen import put, say
from sandboxd_client.handshake import lost_error, unwrap
from sandboxd_client.jsontext import LineBuffer, dumps, loads

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket
    from collections.abc import Callable
    from typing import Any

# For a machine so busy that no sandbox is made meanwhile: the ID is printed all the same.
_START_S = 10
_EXECUTE_ID, _WAIT_ID = 0, 1


def detach(options: Options, connection: Callable[[Options], socket]) -> int:
    for flag in ("--mode", "--plan", "--ask"):
        if options.has(flag):
            raise UsageError(f"{flag} does not go with --detach", "leave one of them out")
    if options.has("--sandbox"):
        params = in_sandbox(options)
    else:
        params = policy(options, os.environ, terminal=options.has("--pty"))
    if not options.has("--sandbox"):
        from sandboxd_client.cli.start_notices import say_start_notices

        say_start_notices(options, params, terminal=os.isatty(2))
    params |= {"argv": options.operands, "detach": True, "capture": False, "stream": True}
    if options.has("--pty"):
        from sandboxd_client.cli.terminal import size

        rows, cols = size()
        params["pty"] = {"rows": rows, "cols": cols}
    name = options.one("--name")
    if name is not None:
        params["execution_id"] = name
    sock = connection(options)
    try:
        find_sandbox(sock, params)
        join_session(sock, options, params.get("workspace"))
        made = _start(sock, params)
    finally:
        sock.close()
    _print(made, json=options.has("--json"))
    if options.has("--quiet"):
        return 0
    if not options.has("--no-stdin") and _has_unread(0):
        say(
            "warning: --detach gives the command no input, and your stdin has some, which was left "
            "there: let the command read a file (sh -c 'COMMAND < FILE'); -n omits this line"
        )
    if made.get("approval"):
        say(f"it waits for an approval: sandboxctl approve {made['approval']}")
    return 0


def _print(made: dict[str, Any], *, json: bool) -> None:
    """It runs, so that a closed stdout is no failure."""
    wanted = made["execution_id"]
    try:
        put(dumps(made) + b"\n" if json else f"{wanted}\n".encode())
    except OSError as error:
        if error.errno != EBADF:
            raise
        say(f"stdout is closed; it runs as {wanted}")


def _has_unread(fd: int) -> bool:
    """Whether a pipe or file has bytes that were to be read."""
    import stat

    status = os.fstat(fd)
    if stat.S_ISREG(status.st_mode):
        return os.lseek(fd, 0, os.SEEK_CUR) < status.st_size
    if sys.platform != "win32" and stat.S_ISFIFO(status.st_mode):
        from sandboxd_client.cli.file_input import unread

        return unread(fd) > 0
    return False


def _start(sock: socket, params: dict[str, Any]) -> dict[str, Any]:
    """The answer of `execute`, once the command runs or waits for an approval. Raises why it could
    not be started."""
    _send(sock, _EXECUTE_ID, "execute", params)
    made: dict[str, Any] | None = None
    started = False
    lines = LineBuffer()
    while made is None or not started:
        data = sock.recv(1 << 18)
        if not data:
            raise lost_error()
        for message in map(loads, lines.feed(data)):
            if "method" in message:
                started = started or message["method"] == "execution/started"
            elif message.get("id") == _EXECUTE_ID:
                made = dict(unwrap(message))
                if made.get("approval"):
                    return made
                wanted = {"execution_id": made["execution_id"], "timeout_secs": _START_S}
                _send(sock, _WAIT_ID, "execution/wait", wanted)
            else:
                unwrap(message)
                started = True  # it has ended already, or the time is up
    return made


def _send(sock: socket, number: int, method: str, params: dict[str, Any]) -> None:
    request = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
    sock.sendall(dumps(request) + b"\n")
