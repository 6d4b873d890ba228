"""Sockets from a helper in a sandbox's network namespace: the right ones are taken, no others."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

import anyio
import pytest

from sandboxd.linux.netns import handed_sockets
from sandboxd.linux.netns.handed_sockets import PATH, SocketRequest, ask, receive_sockets
from sandboxd_proto.errors import SandboxUnavailable

LOOPBACK = IPv4Address("127.0.0.1")
GOOD = struct.pack("=i", 0)
Sent = Callable[[socket.socket, int], None]


def taken(channel: socket.socket, *socket_requests: SocketRequest) -> list[socket.socket]:
    channel.setblocking(False)

    async def main() -> list[socket.socket]:
        return await receive_sockets(channel, socket_requests)

    return anyio.run(main)


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        yield ours, theirs


class Helpers:
    """Real helpers, each in a network namespace of its own."""

    def __init__(self, folder: Path, held: ExitStack) -> None:
        self._folder = folder
        self._held = held

    def channel(self, *, lo_alone: bool = True) -> socket.socket:
        path = self._folder / f"control{len(list(self._folder.iterdir()))}"
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(str(path))
            listener.listen(1)
            listener.settimeout(20)
            more = "" if lo_alone else "ip link add d0 type veth && ip link set d0 up &&"
            script = f"ip link set lo up && {more} exec {PATH} --connect {path}"
            helper = subprocess.Popen(["unshare", "-rn", "sh", "-c", script])
            self._held.callback(helper.wait, 20)
            channel, _ = listener.accept()
        return self._held.enter_context(channel)


@pytest.fixture
def helpers(tmp_path: Path) -> Iterator[Helpers]:
    with ExitStack() as held:
        yield Helpers(tmp_path, held)


@pytest.mark.requires("unshare", "ip")
def test_sockets_of_an_honest_helper_are_taken(helpers: Helpers) -> None:
    socket_requests = [
        SocketRequest(IPv4Address("0.0.0.0"), 443),
        SocketRequest(LOOPBACK, 53, stream=False),
        SocketRequest(IPv4Address("10.1.1.1"), 8080),
        SocketRequest(IPv6Address("2001:db8::7"), 443, add_address=True),
    ]
    channel = helpers.channel()
    ask(channel, socket_requests)
    made = taken(channel, *socket_requests)
    names = [sock.getsockname()[:2] for sock in made]
    handed_sockets.close_all(made)
    assert names == [
        ("0.0.0.0", 443), ("127.0.0.1", 53), ("10.1.1.1", 8080), ("2001:db8::7", 443),
    ]  # fmt: skip


@pytest.mark.requires("unshare", "ip")
def test_helper_changes_no_namespace_that_has_a_network(helpers: Helpers) -> None:
    """The route of all addresses would cut a machine off: a device beside the loopback is up."""
    channel = helpers.channel(lo_alone=False)
    ask(channel, [SocketRequest(LOOPBACK, 80)])
    with pytest.raises(SandboxUnavailable, match="route of all addresses: Device or resource busy"):
        taken(channel, SocketRequest(LOOPBACK, 80))


@pytest.mark.requires("unshare", "ip")
def test_sockets_of_two_namespaces_are_refused(
    helpers: Helpers, pair: tuple[socket.socket, socket.socket]
) -> None:
    ours, theirs = pair
    theirs.send(GOOD)
    socket_requests = [SocketRequest(LOOPBACK, port) for port in (81, 82)]
    for wish in socket_requests:
        channel = helpers.channel()
        ask(channel, [wish])
        (made,) = taken(channel, wish)
        socket.send_fds(theirs, [GOOD], [made.fileno()])
        made.close()
    with pytest.raises(SandboxUnavailable, match="other network namespaces"):
        taken(ours, *socket_requests)


def listening(address: str = "127.0.0.1", family: int = socket.AF_INET) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    made.bind((address, 0))
    made.listen()
    return made


def test_socket_of_our_own_namespace_is_refused(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    with listening() as made:
        theirs.send(GOOD)
        socket.send_fds(theirs, [GOOD], [made.fileno()])
        with pytest.raises(SandboxUnavailable, match="other network namespaces"):
            taken(ours, SocketRequest(LOOPBACK, made.getsockname()[1]))


def bound_only() -> socket.socket:
    made = socket.socket()
    made.bind(("127.0.0.1", 0))
    return made


def connected() -> socket.socket:
    with listening() as server:
        return socket.create_connection(server.getsockname())


def datagram() -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.bind(("127.0.0.1", 0))
    return made


@pytest.mark.parametrize(
    "lie",
    [
        pytest.param(lambda: listening("127.0.0.2"), id="another address"),
        pytest.param(lambda: listening("0.0.0.0"), id="all addresses"),
        pytest.param(lambda: listening("::1", socket.AF_INET6), id="another family"),
        pytest.param(bound_only, id="not listening"),
        pytest.param(connected, id="connected"),
        pytest.param(datagram, id="datagrams"),
        pytest.param(lambda: socket.socket(socket.AF_UNIX), id="a local socket"),
    ],
)
def test_another_socket_than_was_asked_for_is_refused(
    pair: tuple[socket.socket, socket.socket], lie: Callable[[], socket.socket]
) -> None:
    ours, theirs = pair
    with lie() as made:
        theirs.send(GOOD)
        socket.send_fds(theirs, [GOOD], [made.fileno()])
        here = made.getsockname()
        port = here[1] if isinstance(here, tuple) else 80
        with pytest.raises(SandboxUnavailable, match="another socket was received"):
            taken(ours, SocketRequest(LOOPBACK, port))


def test_another_port_than_was_asked_for_is_refused(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = pair
    with listening() as made:
        theirs.send(GOOD)
        socket.send_fds(theirs, [GOOD], [made.fileno()])
        with pytest.raises(SandboxUnavailable, match="another socket was received"):
            taken(ours, SocketRequest(LOOPBACK, made.getsockname()[1] - 1))


def _file(theirs: socket.socket, fd: int) -> None:
    theirs.send(GOOD)
    socket.send_fds(theirs, [GOOD], [fd])


def _early(theirs: socket.socket, fd: int) -> None:
    socket.send_fds(theirs, [GOOD], [fd])


def _none(theirs: socket.socket, fd: int) -> None:
    theirs.send(GOOD)
    theirs.send(GOOD)


def _short(theirs: socket.socket, fd: int) -> None:
    socket.send_fds(theirs, [b"\0"], [fd])


def _error(theirs: socket.socket, fd: int) -> None:
    socket.send_fds(theirs, [struct.pack("=i", 13)], [fd])


def _gone(theirs: socket.socket, fd: int) -> None:
    theirs.send(GOOD)
    theirs.close()


@pytest.mark.parametrize(
    ("send", "why"),
    [
        (_file, "not a socket$"),
        (_early, "unexpected descriptor"),
        (_none, "no socket was received"),
        (_short, "the helper ended"),
        (_error, "Permission denied"),
        (_gone, "the helper ended"),
    ],
)
def test_answers_that_make_no_sense_end_it_and_nothing_stays_open(
    pair: tuple[socket.socket, socket.socket], send: Sent, why: str
) -> None:
    ours, theirs = pair
    with open(os.devnull) as file:
        before = len(os.listdir("/proc/self/fd"))
        alive = theirs.fileno()
        send(theirs, file.fileno())
        with pytest.raises(SandboxUnavailable, match=why):
            taken(ours, SocketRequest(LOOPBACK, 80))
        closed = 0 if theirs.fileno() == alive else 1
        assert len(os.listdir("/proc/self/fd")) == before - closed


def test_silence_ends_it(
    pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handed_sockets, "TIMEOUT_S", 0.05)
    ours, theirs = pair
    theirs.send(GOOD)
    with pytest.raises(SandboxUnavailable, match="does not answer"):
        taken(ours, SocketRequest(LOOPBACK, 80))
