"""Receive and check the sockets that a helper makes in a sandbox's network namespace.

The helper (netns/netns.c) runs inside the sandbox's namespaces, so its answers are not trusted. A
socket is accepted only if it has the requested address and type, and is in the same network
namespace as all others, which must not be the daemon's.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Sequence
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, ip_address

import anyio
import msgspec

from sandboxd_proto.errors import SandboxUnavailable

PATH = os.path.join(os.path.dirname(__file__), "sandboxd-netns")
WISHES_MAX = 4096
TIMEOUT_S = 20.0
_ADD_ADDRESS, _ROUTE_ALL = 1, 2
_RAW = 2
_WISH = struct.Struct("=BBHI16s")
_SO_NETNS_COOKIE = 71  # Linux 5.14


class SocketRequest(msgspec.Struct, frozen=True):
    """A listening TCP socket or a bound UDP socket. `add_address`: put it on the loopback first.

    `raw`: a raw socket for TCP instead, whose port is the protocol's number.
    """

    address: IPv4Address | IPv6Address
    port: int
    stream: bool = True
    add_address: bool = False
    raw: bool = False

    def __str__(self) -> str:
        return f"{self.address} port {self.port}"

    @property
    def encoded(self) -> bytes:
        flags = _ADD_ADDRESS if self.add_address else 0
        version, packed = self.address.version, self.address.packed
        kind = _RAW if self.raw else int(self.stream)
        return _WISH.pack(version, kind, self.port, flags, packed)


_ALL = _WISH.pack(4, 0, 0, _ROUTE_ALL, b"")


def netns_error(why: str) -> SandboxUnavailable:
    return SandboxUnavailable(f"the sandbox's network could not be set up: {why}")


def ask(channel: socket.socket, socket_requests: Sequence[SocketRequest]) -> None:
    """Send all requested sockets in one message, which fits into an empty channel."""
    if len(socket_requests) >= WISHES_MAX:
        raise netns_error(f"more than {WISHES_MAX} addresses and ports are asked for")
    try:
        channel.send(_ALL + b"".join(request.encoded for request in socket_requests))
    except OSError as error:
        raise netns_error(f"the helper cannot be asked ({os.strerror(error.errno or 0)})") from None


async def receive_sockets(
    channel: socket.socket, socket_requests: Sequence[SocketRequest]
) -> list[socket.socket]:
    """One socket for each request, in order. All, or SandboxUnavailable.

    From then on connections to any IPv4 address end at the listeners for all addresses.
    """
    made: list[socket.socket] = []
    try:
        with anyio.fail_after(TIMEOUT_S):
            # First, so that sockets can be bound to addresses of other hosts.
            await _nothing(channel, "the route of all addresses")
            for request in socket_requests:
                made.append(await _socket_for(channel, request))
        _check_namespace(made)
    except TimeoutError:
        close_all(made)
        raise netns_error("the helper does not answer") from None
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
        raise netns_error(f"{what}: an unexpected descriptor")


async def _socket_for(channel: socket.socket, request: SocketRequest) -> socket.socket:
    fd = await _answer(channel, str(request))
    if fd is None:
        raise netns_error(f"{request}: no socket was received")
    try:
        made = socket.socket(fileno=fd)
    except OSError:
        os.close(fd)
        raise netns_error(f"{request}: the descriptor is not a socket") from None
    if not _is_requested(made, request):
        made.close()
        raise netns_error(f"{request}: another socket was received")
    made.setblocking(False)
    return made


async def _answer(channel: socket.socket, what: str) -> int | None:
    """The descriptor of one successful answer."""
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
        raise netns_error(f"{what}: {os.strerror(error) if error > 0 else 'the helper ended'}")
    return fds[0] if fds else None


def _is_requested(made: socket.socket, request: SocketRequest) -> bool:
    family = socket.AF_INET if request.address.version == 4 else socket.AF_INET6
    kind = (socket.SOCK_STREAM, socket.IPPROTO_TCP)
    if request.raw:
        kind = (socket.SOCK_RAW, socket.IPPROTO_TCP)
    elif not request.stream:
        kind = (socket.SOCK_DGRAM, socket.IPPROTO_UDP)
    if (made.family, made.type, made.proto) != (family, *kind):
        return False
    listens = bool(made.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
    try:
        made.getpeername()
        return False  # connected
    except OSError:
        here = made.getsockname()
    return listens == request.stream and (ip_address(here[0]), here[1]) == (
        request.address,
        request.port,
    )


def _check_namespace(made: Sequence[socket.socket]) -> None:
    """Not checked on kernels that cannot tell the namespace of a socket."""
    with suppress(OSError):
        cookies = {one.getsockopt(socket.SOL_SOCKET, _SO_NETNS_COOKIE, 8) for one in made}
        with socket.socket(socket.AF_UNIX) as own:
            here = own.getsockopt(socket.SOL_SOCKET, _SO_NETNS_COOKIE, 8)
        if len(cookies) > 1 or here in cookies:
            raise netns_error("the sockets are from other network namespaces")
