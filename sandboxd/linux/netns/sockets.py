"""Sockets in the network namespace of a bubblewrap sandbox, made by a short-lived helper.

The command inside has no capabilities, so only the helper can bind ports below 1024. The daemon
never leaves its own namespaces.
"""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Sequence

import anyio
import msgspec

from sandboxd.linux.netns.handed_sockets import (
    PATH,
    SocketRequest,
    ask,
    netns_error,
    receive_sockets,
)
from sandboxd.linux.spawn import Helper, spawn
from sandboxd_proto.errors import SandboxUnavailable

_NS_GET_USERNS = 0xB701


class Namespaces(msgspec.Struct, frozen=True):
    """Descriptors of the network namespace and of the user namespace that owns it."""

    user: int
    net: int

    def close(self) -> None:
        os.close(self.user)
        os.close(self.net)


async def sockets_below(
    helper_pid: int, socket_requests: Sequence[SocketRequest]
) -> list[socket.socket]:
    """One socket for each request, in order. All, or SandboxUnavailable.

    `helper_pid`: a living child of ours that is bwrap. Connections to any IPv4 address end at the
    listeners for all addresses.
    """
    where = _namespaces_below(helper_pid)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    try:
        ask(ours, socket_requests)
        helper = _started(where, theirs)
        try:
            return await receive_sockets(ours, socket_requests)
        finally:
            await _ended(helper)
    finally:
        ours.close()
        theirs.close()
        where.close()


def _namespaces_below(helper_pid: int) -> Namespaces:
    """The namespaces of the only child of `helper_pid`."""
    child = _only_child(helper_pid)
    try:
        net = os.open(f"/proc/{child}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise netns_error(f"cannot open its namespaces ({os.strerror(error.errno or 0)})") from None
    try:
        if _only_child(helper_pid) != child:  # its pid could have been reused
            raise netns_error("the sandbox is gone")
        if os.fstat(net).st_ino == os.stat("/proc/self/ns/net").st_ino:
            raise netns_error("it has no network namespace of its own")
        # With --disable-userns the init is in a nested one, which owns nothing.
        user = fcntl.ioctl(net, _NS_GET_USERNS)
    except OSError as error:
        os.close(net)
        raise netns_error(f"cannot find its namespaces ({os.strerror(error.errno or 0)})") from None
    except BaseException:
        os.close(net)
        raise
    os.set_inheritable(user, False)
    return Namespaces(user, net)


def _only_child(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
            children = file.read().split()
    except OSError:
        children = []
    if len(children) != 1:
        raise netns_error("its init cannot be found")
    return int(children[0])


def _started(where: Namespaces, theirs: socket.socket) -> Helper:
    numbers = [where.user, where.net, theirs.fileno()]
    null = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    try:
        return spawn([PATH, *map(str, numbers)], {}, numbers, stderr=null)
    except OSError as error:
        raise SandboxUnavailable(
            f"the helper for network namespaces cannot be started: {PATH} "
            f"({os.strerror(error.errno or 0)})",
            remedy="install sandboxd again with a C compiler (apt-get install gcc libc6-dev)",
        ) from None
    finally:
        os.close(null)
        theirs.close()


async def _ended(helper: Helper) -> None:
    with anyio.CancelScope(shield=True):
        with anyio.move_on_after(1):
            await helper.ended()
        if helper.poll() is None:
            helper.kill()
            await helper.ended()
