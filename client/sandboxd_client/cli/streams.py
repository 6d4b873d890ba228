"""How the command's three streams are connected: by a terminal, by our own pipes, or by messages.

A pipe or socket of ours is passed to the daemon, which connects it to the command's own pipe: its
bytes, its end and SIGPIPE do not pass through us. A file or terminal is relayed by us; a file as
stdin through a pipe that is passed (file_input). Of sockets only connected Unix stream sockets are
passed.

stderr goes through messages of the daemon. When it is the same pipe as stdout (`2>&1`), both are
passed, or their lines would not be in the order in which they were written. What is not passed (a
file, a terminal) we relay, and the command has one pipe of the daemon's for both. So it is with a
pipe of another user (sudo -u, su): the daemon cannot open it anew, and would read no denials in it.

With a terminal for stdin and stdout, a stderr that is redirected is a pipe beside the terminal.
"""

from __future__ import annotations

import os
import sys

assert sys.platform != "win32"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from sandboxd_client.cli.file_input import FileInput

_KEPT_BYTES = 64 * 1024
_KEPT_ERRORS = 8 * 1024
_FIFO, _REGULAR, _SOCKET, _KIND = 0o010000, 0o100000, 0o140000, 0o170000


class Streams:
    """`input`, `output`: whether ours may be passed on, if they are what can be. `stderr`: whether
    it may be apart from the terminal. `merge`: whether stdout and stderr may be one pipe. `keeps`:
    whether the end of the output is kept for a hint; then it is relayed. `errors`: the end of what
    was printed on stderr; None if it is passed on."""

    def __init__(
        self, *, pty: bool, input: bool, output: bool, stderr: bool = True, merge: bool = True,
        keeps: bool = False,
    ) -> None:  # fmt: skip
        self.printed: bytes | None = b"" if keeps else None
        self.pty = pty
        self.raw = pty and os.isatty(0)
        self.stderr_apart = pty and stderr and not os.isatty(2) and not _is_same(1, 2)
        self.passed: dict[str, int] = {}  # stream to descriptor
        self.file: FileInput | None = None
        self._merged = False
        if not pty:
            self._choose(input, output, merge and _is_same(1, 2))
        self.errors: bytes | None = None if "stderr" in self.passed else b""
        self.repeatable = not self.passed  # what is passed is the first command's own
        self.forwards_input = "stdin" not in self.passed and has_input(0)

    def _choose(self, input: bool, output: bool, same: bool) -> None:
        if input and passable(0):
            self.passed["stdin"] = 0
        elif input and _is_file(0):
            from sandboxd_client.cli.file_input import FileInput

            self.file = FileInput(0)
            self.passed["stdin"] = self.file.read_end
        unread = same and _is_of_another_user(1)
        if output and self.printed is None and passable(1) and not unread:
            self.passed["stdout"] = 1
            if same:
                self.passed["stderr"] = 1
        else:
            self._merged = same

    def keep(self, stream: str, data: bytes) -> None:
        if self.printed is not None:
            self.printed = (self.printed + data)[-_KEPT_BYTES:]
        if self.errors is not None and (stream == "stderr" or self.pty or self._merged):
            self.errors = (self.errors + data)[-_KEPT_ERRORS:]

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

    def terminal(self) -> dict[str, Any] | None:
        """The `pty` of a request."""
        if not self.pty:
            return None
        from sandboxd_client.cli.terminal import size

        rows, cols = size()
        apart = {"stderr": "pipe"} if self.stderr_apart else {}
        return {"rows": rows, "cols": cols, **apart}

    def let_go(self) -> None:
        """Close our copies: otherwise the command's close would not be seen outside."""
        if not self.passed:
            return
        null = os.open(os.devnull, os.O_RDWR)
        for fd in self.descriptors:
            if self.file is None or fd != self.file.read_end:
                os.dup2(null, fd)
        os.close(null)
        self.passed = {}

    def close(self) -> None:
        """After the command's end."""
        if self.file is not None:
            self.file.close()


def _is_same(one: int, other: int) -> bool:
    return os.path.samestat(os.fstat(one), os.fstat(other))


def has_input(fd: int = 0) -> bool:
    """False for a closed descriptor and /dev/null: the command's stdin is then simply empty."""
    try:
        status = os.fstat(fd)
        return not os.path.samestat(status, os.stat(os.devnull))
    except OSError:
        return False


def _is_file(fd: int) -> bool:
    """Elsewhere than on Linux the daemon cannot leave bytes in a pipe."""
    return sys.platform == "linux" and os.fstat(fd).st_mode & _KIND == _REGULAR


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
