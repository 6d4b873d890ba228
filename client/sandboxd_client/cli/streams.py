"""How the command's three streams are connected: by a terminal, by our own pipes, or by messages.

A pipe or socket of ours is passed to the daemon, which connects it to the command's own pipe: its
bytes, its end and SIGPIPE do not pass through us. A file or terminal is relayed by us. Of sockets
only connected Unix stream sockets are passed.

stderr goes through messages of the daemon. When it is the same pipe as stdout (`2>&1`), both are
passed, or their lines would not be in the order in which they were written. A pipe of another user
(sudo -u, su) cannot be opened anew by the daemon, which then reads no denials in it: there the
command has one pipe of the daemon's for both, and we relay.
"""

from __future__ import annotations

import os
import sys

assert sys.platform != "win32"

from sandboxd_client.cli.input import has_input  # noqa: E402 - after the platform is known
from sandboxd_client.cli.terminal import is_terminal  # noqa: E402

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_FIFO, _SOCKET, _KIND = 0o010000, 0o140000, 0o170000


class Streams:
    """`input`, `output`: whether ours may be passed on, if they are what can be."""

    def __init__(self, *, pty: bool, input: bool, output: bool) -> None:
        self.pty = pty
        self.raw = pty and is_terminal(0)
        self.passed: dict[str, int] = {}  # stream to descriptor
        self._merged = False
        if not pty:
            self._choose(input, output)
        self.forwards_input = "stdin" not in self.passed and has_input(0)

    def _choose(self, input: bool, output: bool) -> None:
        if input and passable(0):
            self.passed["stdin"] = 0
        if output and passable(1):
            same = os.path.samestat(os.fstat(1), os.fstat(2))
            self._merged = same and _is_of_another_user(1)
            if self._merged:
                return
            self.passed["stdout"] = 1
            if same:
                self.passed["stderr"] = 1

    @property
    def passes_output(self) -> bool:
        return "stdout" in self.passed

    @property
    def descriptors(self) -> list[int]:
        return list(dict.fromkeys(self.passed.values()))

    def params(self) -> dict[str, Any]:
        sent = self.descriptors
        fds = {name: sent.index(fd) for name, fd in self.passed.items()}
        merged = {"stderr": "stdout"} if self._merged else {}
        return {"fds": fds, **merged} if fds else merged

    def let_go(self) -> None:
        """Close our copies: otherwise the command's close would not be seen outside."""
        if not self.passed:
            return
        null = os.open(os.devnull, os.O_RDWR)
        for fd in self.descriptors:
            os.dup2(null, fd)
        os.close(null)
        self.passed = {}


def _is_of_another_user(fd: int) -> bool:
    return os.geteuid() not in (0, os.fstat(fd).st_uid)


def passable(fd: int) -> bool:
    kind = os.fstat(fd).st_mode & _KIND
    return kind == _FIFO or (kind == _SOCKET and _unix_stream(fd))


def _unix_stream(fd: int) -> bool:
    import _socket

    sock = _socket.socket(fileno=os.dup(fd))
    try:
        sock.getpeername()
        return sock.family == _socket.AF_UNIX and sock.type == _socket.SOCK_STREAM
    except OSError:
        return False
    finally:
        sock.close()
