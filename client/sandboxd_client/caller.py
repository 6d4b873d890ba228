"""What a command gets of the caller: usual variables, and the caller's own pipes and sockets.

Pipes and sockets are passed with a frame's first byte (SCM_RIGHTS). Their bytes do not pass through
JSON: the daemon connects them to the command's pipes.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket
    from collections.abc import Mapping, Sequence
    from typing import Literal, Protocol

    class HasFileno(Protocol):
        def fileno(self) -> int: ...

    Descriptors = Mapping[Literal["stdin", "stdout", "stderr"], int | HasFileno]


USUAL = (
    "PATH", "HOME", "USER", "SHELL", "LANG", "TZ", "TERM", "COLORTERM",
    "GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL",
    "EDITOR", "VISUAL", "GIT_EDITOR", "GIT_SEQUENCE_EDITOR",
    # Where a program that PATH leads to finds the rest of itself.
    "RUSTUP_HOME", "JAVA_HOME", "GOROOT", "PYENV_ROOT", "DOTNET_ROOT",
)  # fmt: skip


def usual(caller: Mapping[str, str], *, terminal: bool = True) -> dict[str, str]:
    """Where programs are, who the user is, language, terminal, editor. Nothing that is secret.

    Without a `terminal` TERM is `dumb`: git then says that it has no editor, and does not start
    vi, which waits for keys for ever where stderr is a pipe."""
    found = {
        name: value for name, value in caller.items() if name in USUAL or name.startswith("LC_")
    }
    if not terminal and "TERM" in found:
        found["TERM"] = "dumb"
    return found


def numbers(fds: Descriptors) -> list[int]:
    """Each descriptor once, in the order in which they are sent. OSError for a closed one."""
    found = list(dict.fromkeys(map(_number, fds.values())))
    for fd in found:
        os.fstat(fd)  # checked before sending: there the error would look like a lost connection
    return found


def indexes(fds: Descriptors) -> dict[str, int]:
    """The param `fds`: for each stream the index among those that are sent."""
    sent = numbers(fds)
    return {str(name): sent.index(_number(item)) for name, item in fds.items()}


def _number(item: int | HasFileno) -> int:
    return item if isinstance(item, int) else item.fileno()


def send(sock: socket, data: bytes | bytearray, descriptors: Sequence[int]) -> int:
    """Send a beginning of `data`, at least its first byte, with the descriptors."""
    if sys.platform == "win32":
        raise OSError("descriptors can be passed over Unix sockets only")
    import _socket

    rights = b"".join(fd.to_bytes(4, sys.byteorder) for fd in descriptors)
    return sock.sendmsg([data], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)])


class Outgoing:
    """What is still to be sent on a socket, which does not block; descriptors go with the first
    byte."""

    def __init__(self, sock: socket, descriptors: Sequence[int] = ()) -> None:
        sock.setblocking(False)
        self.sock = sock
        self._data = bytearray()
        self._descriptors = descriptors

    def __bool__(self) -> bool:
        return bool(self._data)

    def add(self, data: bytes) -> None:
        self._data += data

    def send_some(self) -> None:
        if self._descriptors:
            del self._data[: send(self.sock, self._data, self._descriptors)]
            self._descriptors = ()
        else:
            del self._data[: self.sock.send(self._data)]

    def flush(self) -> None:
        """As much as the socket takes now. An error comes again with the next `send_some`."""
        try:
            while self._data:
                self.send_some()
        except OSError:
            return
