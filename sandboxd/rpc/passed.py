"""Descriptors that a client passed with `execute`: only pipes and Unix streams reach a command.

A file or a terminal could be reopened by the command through /proc/self/fd with other rights: an
append-only log was truncated and keystrokes were read that way.
"""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Iterable

from sandboxd.supervisor.pipes import Passed
from sandboxd_proto.errors import InvalidParams
from sandboxd_proto.messages.execute import PassedDescriptors


def passed(wanted: PassedDescriptors, received: tuple[int, ...]) -> Passed:
    """Takes over every received descriptor: those not used are closed."""
    used: dict[str, int] = {}
    try:
        for name in ("stdin", "stdout", "stderr"):
            index = getattr(wanted, name)
            if index is not None:
                used[name] = _take(index, received, f"fds.{name}")
    except BaseException:
        _close(used.values())
        raise
    finally:
        _close(received)
    return Passed(**used)


def _take(index: int, received: tuple[int, ...], field: str) -> int:
    """A copy, so that one descriptor may serve for two streams."""
    if not 0 <= index < len(received):
        raise InvalidParams(
            f"{len(received)} descriptors came with this request, and {field} names number {index}",
            field=field, remedy="send them by SCM_RIGHTS with the frame's first byte",
        )  # fmt: skip
    mode = os.fstat(received[index]).st_mode
    if not (stat.S_ISFIFO(mode) or (stat.S_ISSOCK(mode) and _is_fixed(received[index]))):
        raise InvalidParams(
            f"{field} is neither a pipe nor a connected Unix stream socket", field=field,
            remedy="pass a pipe and relay it yourself; ask for a pty for a terminal",
        )  # fmt: skip
    return os.dup(received[index])


def _is_fixed(fd: int) -> bool:
    """Whether a socket leads to one peer for good.

    An Internet socket can be connected anew (AF_UNSPEC) or sent from anywhere: it would carry the
    host's network into the sandbox.
    """
    with socket.socket(fileno=os.dup(fd)) as sock:
        if sock.family != socket.AF_UNIX or sock.type != socket.SOCK_STREAM:
            return False
        try:
            sock.getpeername()
        except OSError:
            return False
        return True


def _close(fds: Iterable[int]) -> None:
    for fd in fds:
        os.close(fd)
