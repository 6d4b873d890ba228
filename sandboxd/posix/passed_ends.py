"""A pipe or socket that a client passed, and what the kernel does with pipes (splice, tee).

The flags of the client's descriptors stay as they are. splice(2) between two pipes does not wait
if one of them, the command's, has O_NONBLOCK; a socket gets MSG_DONTWAIT; and where bytes are
looked at the client's pipe is opened anew.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import stat
import sys
from contextlib import suppress

PIPE_BYTES = 1 << 20
_F_SETPIPE_SZ, _SPLICE_F_NONBLOCK = 1031, 2


class PipeEnd:
    """The client's end of a pipe. Takes over `fd`.

    `own`: it was opened anew, so that write() does not wait. Not possible for a pipe that another
    user has made.
    """

    def __init__(self, fd: int, *, writes: bool) -> None:
        self.fd = fd
        self.own = False
        self.gone = False
        flags = (os.O_WRONLY if writes else os.O_RDONLY) | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            self.fd = os.open(f"/proc/self/fd/{fd}", flags)
        except OSError as error:
            self.gone = error.errno == errno.ENXIO  # there is no reader
            return
        self.own = True
        os.close(fd)

    def write(self, data: bytes) -> int:
        return os.write(self.fd, data)

    def discard(self, count: int) -> None:
        """Take bytes that were copied from it. Another reader may have taken them meanwhile: a
        descriptor that is not `own` would wait for others in read()."""
        if self.own:
            os.read(self.fd, count)
            return
        null = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        try:
            while count > 0:
                count -= splice(self.fd, null, count, _SPLICE_F_NONBLOCK) or count
        finally:
            os.close(null)

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


class SocketEnd:
    """A connected Unix stream socket of the client's. Takes over `fd`."""

    own = True
    gone = False

    def __init__(self, fd: int) -> None:
        self._socket = socket.socket(fileno=fd)
        self.fd = fd

    def write(self, data: bytes) -> int:
        return self._socket.send(data, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)

    def read(self, most: int) -> bytes:
        return self._socket.recv(most, socket.MSG_DONTWAIT)

    def discard(self, count: int) -> None:
        self.read(count)

    def peek(self, most: int) -> bytes:
        return self._socket.recv(most, socket.MSG_DONTWAIT | socket.MSG_PEEK)

    def close(self) -> None:
        self.fd = -1
        self._socket.close()


End = PipeEnd | SocketEnd


def open_end(fd: int, *, writes: bool) -> End:
    if stat.S_ISSOCK(os.fstat(fd).st_mode):
        return SocketEnd(fd)
    return PipeEnd(fd, writes=writes)


def resize(pipe: int, size: int) -> None:
    """As far as the kernel lets this user."""
    if sys.platform == "linux":
        import fcntl

        with suppress(OSError):
            fcntl.fcntl(pipe, _F_SETPIPE_SZ, size)


def unread(pipe: int) -> int:
    import fcntl
    import termios

    answer = fcntl.ioctl(pipe, termios.FIONREAD, b"\0" * 4)
    return int.from_bytes(answer, sys.byteorder)


def tee(source: int, target: int, most: int) -> int:
    """Copy without taking. Does not wait."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    count = int(libc.tee(source, target, ctypes.c_size_t(most), _SPLICE_F_NONBLOCK))
    if count < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return count


def splice(source: int, target: int, most: int, flags: int = 0) -> int:
    if sys.platform == "linux":
        return os.splice(source, target, most, flags=flags)
    raise NotImplementedError("splice exists on Linux only")


def is_ready(fd: int, event: int) -> bool:
    poll = select.poll()
    poll.register(fd, event)
    return any(events & event for _, events in poll.poll(0))
