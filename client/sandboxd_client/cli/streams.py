"""How the command's three streams reach ours: a terminal, our own pipes passed on, or messages.

A pipe or socket of ours is passed on, so its bytes, its end and SIGPIPE are between the command
and whoever is at the other end, without us. A file or terminal is relayed: the command could
reopen it through /proc with other rights. Of sockets only connected Unix stream sockets are
passed on: any other could be connected anew from inside, past the sandbox's network.

stderr goes through the daemon, which reads there what was denied. When it is the same pipe as
stdout (`2>&1`), both are passed on, or their lines would not be in the order in which they were
written; the daemon then knows less about denials (`blind`).
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
        if not pty:
            self._choose(input, output)
        self.forwards_input = "stdin" not in self.passed and has_input(0)

    def _choose(self, input: bool, output: bool) -> None:
        if input and passable(0):
            self.passed["stdin"] = 0
        if output and passable(1):
            self.passed["stdout"] = 1
            if os.path.samestat(os.fstat(1), os.fstat(2)):
                self.passed["stderr"] = 1

    @property
    def passes_output(self) -> bool:
        return "stdout" in self.passed

    @property
    def blind(self) -> bool:
        return "stderr" in self.passed

    @property
    def descriptors(self) -> list[int]:
        return list(dict.fromkeys(self.passed.values()))

    def params(self) -> dict[str, Any]:
        sent = self.descriptors
        fds = {name: sent.index(fd) for name, fd in self.passed.items()}
        return {"fds": fds} if fds else {}

    def let_go(self) -> None:
        """The command has them: with ours kept, its closing them would not be seen outside."""
        if not self.passed:
            return
        null = os.open(os.devnull, os.O_RDWR)
        for fd in self.descriptors:
            os.dup2(null, fd)
        os.close(null)
        self.passed = {}


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
