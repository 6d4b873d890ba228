"""Sockets that launchd opened for this process, by the name that the property list gives them."""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import sys
from collections.abc import Callable

NAME = "Listener"
# (error number, descriptors)
Activate = Callable[[str], tuple[int, list[int]]]


def activated_socket(activate: Activate | None = None, name: str = NAME) -> socket.socket | None:
    """The listening socket; None when this process was not started by launchd with one."""
    if activate is None:
        if sys.platform != "darwin":
            return None
        activate = _launch_activate_socket
    number, descriptors = activate(name)
    if number in (errno.ESRCH, errno.ENOENT, errno.EALREADY):
        return None
    if number != 0:
        raise OSError(number, f"launchd did not hand over the socket {name}: {os.strerror(number)}")
    for fd in descriptors:
        os.set_inheritable(fd, False)
    if len(descriptors) != 1:
        for fd in descriptors:
            os.close(fd)
        raise OSError(errno.EINVAL, f"launchd has {len(descriptors)} sockets {name} instead of one")
    return socket.socket(fileno=descriptors[0])


def _launch_activate_socket(name: str) -> tuple[int, list[int]]:
    """`int launch_activate_socket(const char *, int **fds, size_t *count)`; the array is ours."""
    lib = ctypes.CDLL("/usr/lib/libSystem.B.dylib")
    fds = ctypes.POINTER(ctypes.c_int)()
    count = ctypes.c_size_t(0)
    lib.launch_activate_socket.argtypes = (
        ctypes.c_char_p, ctypes.POINTER(ctypes.POINTER(ctypes.c_int)),
        ctypes.POINTER(ctypes.c_size_t),
    )  # fmt: skip
    lib.launch_activate_socket.restype = ctypes.c_int
    number = lib.launch_activate_socket(name.encode(), ctypes.byref(fds), ctypes.byref(count))
    if number != 0:
        return number, []
    found = [fds[index] for index in range(count.value)]
    lib.free.argtypes = (ctypes.c_void_p,)
    lib.free(ctypes.cast(fds, ctypes.c_void_p))
    return 0, found
