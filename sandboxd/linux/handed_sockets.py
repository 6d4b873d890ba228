"""Sockets that a helper makes in a sandbox's network namespace and hands to the daemon, checked.

The helper (netns/netns.c) is ours, but where it runs is not: whatever comes is looked at as if
somebody else had sent it. A socket is taken only if it is the very one that was asked for, and in
the same network namespace as all others, which is not the daemon's.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address

import anyio

from sandboxd_proto.errors import SandboxUnavailable

PATH = os.path.join(os.path.dirname(__file__), "netns", "sandboxd-netns")
WISHES_MAX = 4096
TIMEOUT_S = 20.0
_ADD_ADDRESS, _ROUTE_ALL = 1, 2
_WISH = struct.Struct("=BBHI16s")
_SO_NETNS_COOKIE = 71  # Linux 5.14


@dataclass(frozen=True, slots=True)
class SocketWish:
    """A listening TCP socket or a bound UDP socket. `add_address`: put it on the loopback first."""

    address: IPv4Address | IPv6Address
    port: int
    stream: bool = True
    add_address: bool = False

    def __str__(self) -> str:
        return f"{self.address} port {self.port}"

    @property
    def encoded(self) -> bytes:
        flags = _ADD_ADDRESS if self.add_address else 0
        version, packed = self.address.version, self.address.packed
        return _WISH.pack(version, self.stream, self.port, flags, packed)


_ALL = _WISH.pack(4, 0, 0, _ROUTE_ALL, b"")


def failed(why: str) -> SandboxUnavailable:
    return SandboxUnavailable(f"the sandbox's network could not be set up: {why}")


def ask(channel: socket.socket, wishes: Sequence[SocketWish]) -> None:
    """Send the wishes, all in one message. It fits into an empty channel."""
    if len(wishes) >= WISHES_MAX:
        raise failed(f"more than {WISHES_MAX} addresses and ports are asked for")
    try:
        channel.send(_ALL + b"".join(wish.encoded for wish in wishes))
    except OSError as error:
        raise failed(f"the helper cannot be asked ({os.strerror(error.errno or 0)})") from None


async def received(channel: socket.socket, wishes: Sequence[SocketWish]) -> list[socket.socket]:
    """One socket for each wish that was asked for, in order. All or SandboxUnavailable.

    From then on connections to any IPv4 address end at the listeners for all addresses.
    """
    made: list[socket.socket] = []
    try:
        with anyio.fail_after(TIMEOUT_S):
            # First, so that sockets can be bound to addresses of other hosts.
            await _nothing(channel, "the route of all addresses")
            for wish in wishes:
                made.append(await _socket_for(channel, wish))
        _check_namespace(made)
    except TimeoutError:
        close_all(made)
        raise failed("the helper does not answer") from None
    except BaseException:
        close_all(made)
        raise
    return made


def close_all(made: Sequence[socket.socket]) -> None:
    for one in made:
        one.close()


async def _nothing(channel: socket.socket, what: str) -> None:
    fd = await _answer(channel, what)
    if fd is not None:
        os.close(fd)
        raise failed(f"{what}: a descriptor that nobody asked for")


async def _socket_for(channel: socket.socket, wish: SocketWish) -> socket.socket:
    fd = await _answer(channel, str(wish))
    if fd is None:
        raise failed(f"{wish}: no socket came")
    try:
        made = socket.socket(fileno=fd)
    except OSError:
        os.close(fd)
        raise failed(f"{wish}: what came is no socket") from None
    if not _is_wished(made, wish):
        made.close()
        raise failed(f"{wish}: another socket came")
    made.setblocking(False)
    return made


async def _answer(channel: socket.socket, what: str) -> int | None:
    """The descriptor of one answer that is good news."""
    while True:
        try:
            data, fds, _, _ = socket.recv_fds(channel, 4, 1)
            break
        except BlockingIOError:
            await anyio.wait_readable(channel)
        except OSError:
            data, fds = b"", []
            break
    for fd in fds:
        os.set_inheritable(fd, False)
    error = struct.unpack("=i", data)[0] if len(data) == 4 else -1
    if error != 0:
        for fd in fds:
            os.close(fd)
        raise failed(f"{what}: {os.strerror(error) if error > 0 else 'the helper ended'}")
    return fds[0] if fds else None


def _is_wished(made: socket.socket, wish: SocketWish) -> bool:
    family = socket.AF_INET if wish.address.version == 4 else socket.AF_INET6
    kind = (socket.SOCK_STREAM, socket.IPPROTO_TCP)
    if not wish.stream:
        kind = (socket.SOCK_DGRAM, socket.IPPROTO_UDP)
    if (made.family, made.type, made.proto) != (family, *kind):
        return False
    listens = bool(made.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
    try:
        made.getpeername()
        return False  # connected to somewhere
    except OSError:
        here = made.getsockname()
    return listens == wish.stream and (ip_address(here[0]), here[1]) == (wish.address, wish.port)


def _check_namespace(made: Sequence[socket.socket]) -> None:
    """Kernels that do not tell the namespace of a socket are taken at the helper's word."""
    with suppress(OSError):
        cookies = {one.getsockopt(socket.SOL_SOCKET, _SO_NETNS_COOKIE, 8) for one in made}
        with socket.socket(socket.AF_UNIX) as own:
            here = own.getsockopt(socket.SOL_SOCKET, _SO_NETNS_COOKIE, 8)
        if len(cookies) > 1 or here in cookies:
            raise failed("sockets of other network namespaces came")
