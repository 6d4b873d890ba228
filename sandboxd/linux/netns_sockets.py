"""Sockets in a sandbox's network namespace, made by a short-lived helper and served from outside.

It hides how the namespaces are found and joined. The command in there has no capabilities, so only
the helper can bind ports below 1024; the daemon itself never leaves its own namespaces.
"""

from __future__ import annotations

import fcntl
import os
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address

import anyio

from sandboxd.linux.spawn import Helper, spawn
from sandboxd_proto.errors import SandboxUnavailable

PATH = os.path.join(os.path.dirname(__file__), "netns", "sandboxd-netns")
WISHES_MAX = 4096
_TIMEOUT_S = 20.0
_NS_GET_USERNS = 0xB701
_ADD_ADDRESS, _ROUTE_ALL = 1, 2


@dataclass(frozen=True, slots=True)
class SocketWish:
    """A listening TCP socket or a bound UDP socket. `add_address`: put it on the loopback first."""

    address: IPv4Address | IPv6Address
    port: int
    stream: bool = True
    add_address: bool = False


@dataclass(frozen=True, slots=True)
class Namespaces:
    """Descriptors of the network namespace and of the user namespace that owns it."""

    user: int
    net: int

    def close(self) -> None:
        os.close(self.user)
        os.close(self.net)


def namespaces_below(helper_pid: int) -> Namespaces:
    """Those of the only child of `helper_pid`, a living child of ours that is bwrap."""
    child = _only_child(helper_pid)
    try:
        net = os.open(f"/proc/{child}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise _failed(f"cannot open its namespaces ({os.strerror(error.errno or 0)})") from None
    try:
        if _only_child(helper_pid) != child:  # its pid could be somebody else's by now
            raise _failed("the sandbox is gone")
        if os.fstat(net).st_ino == os.stat("/proc/self/ns/net").st_ino:
            raise _failed("it has no network namespace of its own")
        # With --disable-userns the init is in a nested one, which owns nothing.
        user = fcntl.ioctl(net, _NS_GET_USERNS)
    except OSError as error:
        os.close(net)
        raise _failed(f"cannot find its namespaces ({os.strerror(error.errno or 0)})") from None
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
        raise _failed("its init cannot be found")
    return int(children[0])


async def sockets_in(
    where: Namespaces, wishes: Sequence[SocketWish], *, route_all: bool = False
) -> list[socket.socket]:
    """One socket for each wish, in order. All or SandboxUnavailable.

    `route_all`: connections to any IPv4 address end at the listeners for all addresses.
    """
    if len(wishes) >= WISHES_MAX:
        raise _failed(f"more than {WISHES_MAX} addresses and ports are asked for")
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    made: list[socket.socket] = []
    try:
        ours.send(b"".join(_encoded(wish) for wish in wishes) + (_ALL if route_all else b""))
        helper = _started(where, theirs)
        try:
            with anyio.fail_after(_TIMEOUT_S):
                for wish in wishes:
                    made.append(await _socket_for(ours, wish))
                if route_all:
                    await _answer(ours, "the route of all addresses")
        finally:
            await _ended(helper)
    except TimeoutError:
        _close_all(made)
        raise _failed("the helper does not answer") from None
    except BaseException:
        _close_all(made)
        raise
    finally:
        ours.close()
        theirs.close()
    return made


_ALL = struct.pack("=BBHI16s", 4, 0, 0, _ROUTE_ALL, b"")


def _encoded(wish: SocketWish) -> bytes:
    flags = _ADD_ADDRESS if wish.add_address else 0
    version, packed = wish.address.version, wish.address.packed
    return struct.pack("=BBHI16s", version, wish.stream, wish.port, flags, packed)


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


async def _socket_for(ours: socket.socket, wish: SocketWish) -> socket.socket:
    where = f"{wish.address} port {wish.port}"
    fds = await _answer(ours, where)
    if len(fds) != 1:
        raise _failed(f"{where}: no socket came")
    return _wrapped(fds[0], wish)


async def _answer(ours: socket.socket, what: str) -> list[int]:
    """The descriptors of one answer (at most one)."""
    while True:
        try:
            data, fds, _, _ = socket.recv_fds(ours, 4, 1)
            break
        except BlockingIOError:
            await anyio.wait_readable(ours)
    error = struct.unpack("=i", data)[0] if len(data) == 4 else -1
    if error != 0:
        raise _failed(f"{what}: {os.strerror(error) if error > 0 else 'the helper ended'}")
    return fds


def _wrapped(fd: int, wish: SocketWish) -> socket.socket:
    os.set_inheritable(fd, False)
    family = socket.AF_INET if wish.address.version == 4 else socket.AF_INET6
    kind = socket.SOCK_STREAM if wish.stream else socket.SOCK_DGRAM
    made = socket.socket(family, kind, 0, fd)
    made.setblocking(False)
    return made


async def _ended(helper: Helper) -> None:
    with anyio.CancelScope(shield=True):
        with anyio.move_on_after(1):
            await helper.ended()
        if helper.poll() is None:
            helper.kill()
            await helper.ended()


def _close_all(made: list[socket.socket]) -> None:
    for one in made:
        one.close()


def _failed(why: str) -> SandboxUnavailable:
    return SandboxUnavailable(f"the sandbox's network could not be set up: {why}")

