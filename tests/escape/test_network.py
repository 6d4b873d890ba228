"""`network: deny`: every way out that does not need a route. Each control is a plain connection."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from support.attacks import Box, Build, freely, python, weakest

pytestmark = pytest.mark.isolation

DENIED = weakest(network="deny")
ROOT = os.geteuid() == 0

TALK = python("""
    family = socket.AF_INET6 if ":" in args[0] else socket.AF_INET
    kind = socket.SOCK_DGRAM if args[2] == "udp" else socket.SOCK_STREAM
    with socket.socket(family, kind) as client:
        client.settimeout(5)
        client.connect((args[0], int(args[1])))
        client.send(b"hello")
        worked() if client.recv(16) == b"HELLO" else blocked("no answer")
""")


@contextmanager
def shouter(address: str, kind: str) -> Iterator[int]:
    """A server of the host that answers in capitals; its port."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    type_ = socket.SOCK_DGRAM if kind == "udp" else socket.SOCK_STREAM
    with socket.socket(family, type_) as server:
        server.bind((address, 0))
        if kind != "udp":
            server.listen()
        stopped = threading.Event()
        server.settimeout(0.1)

        def serve() -> None:
            while not stopped.is_set():
                try:
                    if kind == "udp":
                        data, client = server.recvfrom(64)
                        server.sendto(data.upper(), client)
                    else:
                        accepted, _ = server.accept()
                        with accepted, suppress(OSError):
                            accepted.sendall(accepted.recv(64).upper())
                except TimeoutError:
                    continue

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield int(server.getsockname()[1])
        finally:
            stopped.set()
            thread.join()


def _own_address() -> str:
    """An address of this machine that is not the loopback's; the loopback's if there is none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"


@pytest.mark.parametrize("address", ["127.0.0.1", "own"])
def test_tcp_does_not_reach_the_host(box: Box, address: str) -> None:
    """Connect to a server of the host, on its loopback and on its own address."""
    address = _own_address() if address == "own" else address
    with shouter(address, "tcp") as port:
        assert freely(TALK, address, port, "tcp").worked
        assert box.attack(TALK, address, port, "tcp", manifest=DENIED).blocked


def test_udp_does_not_reach_the_host(box: Box) -> None:
    """A datagram, which Landlock's rules for ports do not cover."""
    with shouter("127.0.0.1", "udp") as port:
        assert freely(TALK, "127.0.0.1", port, "udp").worked
        assert box.attack(TALK, "127.0.0.1", port, "udp", manifest=DENIED).blocked


@pytest.mark.parametrize("kind", ["tcp", "udp"])
def test_ipv6_does_not_reach_the_host(box: Box, kind: str) -> None:
    """The same by IPv6, which rules for IPv4 forget."""
    with shouter("::1", kind) as port:
        assert freely(TALK, "::1", port, kind).worked
        assert box.attack(TALK, "::1", port, kind, manifest=DENIED).blocked


def test_dns_query_does_not_leave(box: Box) -> None:
    """Ask a name server by hand: a query carries data out even if nothing else does."""
    attack = python("""
        query = bytes.fromhex("123401000001000000000000") + b"\\6secret\\7example\\0\\0\\1\\0\\1"
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.settimeout(5)
            client.connect((args[0], int(args[1])))  # so that a closed port is an error at once
            client.send(query)
            worked() if client.recv(512) else blocked("no answer")
    """)
    with shouter("127.0.0.1", "udp") as port:
        assert freely(attack, "127.0.0.1", port).worked
        assert box.attack(attack, "127.0.0.1", port, manifest=DENIED).blocked


def test_names_are_not_resolved(box: Box) -> None:
    """getaddrinfo through whatever the machine has: a resolver's socket, nscd, systemd-resolved."""
    attack = python("""
        seen = []
        real = socket.socket.connect
        for name in ("/run/systemd/resolve/io.systemd.Resolve", "/var/run/nscd/socket"):
            if os.path.exists(name):
                seen.append(name)
        for line in open("/etc/resolv.conf"):
            words = line.split()
            if words[:1] == ["nameserver"]:
                with socket.socket(socket.AF_INET6 if ":" in words[1] else socket.AF_INET,
                                   socket.SOCK_DGRAM) as client:
                    client.connect((words[1], 53))
                    client.send(b"?" * 12)
                    # The init turns a resolver to the sandbox's own loopback, where no one listens.
                    if client.getpeername()[0] == words[1]:
                        seen.append(words[1])
        worked(*seen) if seen else blocked("none")
    """)
    servers = [line.split()[1] for line in Path("/etc/resolv.conf").read_text().splitlines()
               if line.startswith("nameserver")]  # fmt: skip
    control = freely(attack)
    assert control.worked or not servers or control.words == "ENETUNREACH"
    assert box.attack(attack, manifest=DENIED).blocked


def test_raw_socket_is_not_made(box: Box) -> None:
    """A raw ICMP socket: a ping can carry data. Root's technique, or a nested namespace's."""
    attack = python("""
        try:
            socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
        except PermissionError:
            powers(NEWNET)
            socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
        worked()
    """)
    assert freely(attack).worked
    assert box.attack(attack, manifest=DENIED).blocked


def test_packet_socket_is_not_made(box: Box) -> None:
    """AF_PACKET, by its own name and by the old spelling (AF_INET, SOCK_PACKET)."""
    attack = python("""
        made = []
        for family, kind in ((socket.AF_PACKET, socket.SOCK_RAW), (socket.AF_INET, 10)):
            try:
                socket.socket(family, kind, 0x0300)
                made.append(family)
            except OSError:
                try:
                    powers(NEWNET)
                    socket.socket(family, kind, 0x0300)
                    made.append(family)
                except OSError:
                    pass
        worked(*map(int, made)) if made else blocked("none")
    """)
    assert freely(attack).worked
    inside = box.attack(attack, manifest=DENIED)
    assert inside.blocked, inside.words


def test_netlink_shows_no_interfaces_of_the_host(box: Box) -> None:
    """NETLINK_ROUTE: the host's interfaces and addresses."""
    attack = python("""
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as netlink:
            netlink.send(struct.pack("IHHIIBxHiII", 32, 18, 0x301, 1, 0, 0, 0, 0, 0, 0))
            names = []
            while True:
                data, at = netlink.recv(1 << 16), 0
                while at < len(data):
                    length, kind = struct.unpack_from("IH", data, at)
                    if kind == 3:
                        worked(*names) if {*names} - {"lo"} else blocked(*names)
                    inner = at + 32
                    while inner < at + length:
                        size, tag = struct.unpack_from("HH", data, inner)
                        if tag == 3:
                            names.append(data[inner + 4:inner + size - 1].decode())
                        inner += (size + 3) & ~3
                    at += (length + 3) & ~3
    """)
    others = [name for _, name in socket.if_nameindex() if name != "lo"]
    assert freely(attack).worked == bool(others)
    assert box.attack(attack, manifest=DENIED).blocked


def test_netlink_reaches_no_other_subsystem(box: Box) -> None:
    """NETLINK_KOBJECT_UEVENT, _AUDIT, _NETFILTER, _GENERIC: news and switches of the machine."""
    attack = python("""
        made = []
        for protocol in (9, 12, 15, 16):
            try:
                socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol)
                made.append(protocol)
            except OSError:
                pass
        worked(*made) if made else blocked("none")
    """)
    assert freely(attack).worked
    inside = box.attack(attack, manifest=DENIED)
    assert inside.blocked, inside.words


VSOCK = python("socket.socket(40, socket.SOCK_STREAM); worked()")


def _has_vsock() -> bool:
    """The family is a module of the kernel: where it is missing there is nothing to reach."""
    try:
        socket.socket(40, socket.SOCK_STREAM).close()
    except OSError:
        return False
    return True


def test_vsock_is_not_made(box: Box) -> None:
    """AF_VSOCK reaches the hypervisor and works in an empty network namespace."""
    assert freely(VSOCK).worked == _has_vsock()
    assert box.attack(VSOCK, manifest=DENIED).blocked


def test_vsock_is_not_made_through_io_uring(box: Box, build: Build) -> None:
    """The same by IORING_OP_SOCKET, which no filter for socket(2) sees."""
    attack = build("uring")
    assert freely(attack, "socket", 40).worked == _has_vsock()
    manifest = DENIED | {"fs_read_allow": [*attack]}
    assert box.attack(attack, "socket", 40, manifest=manifest).blocked


def test_other_families_are_not_made(box: Box) -> None:
    """Every family but the usual ones: each is kernel code that exploits start from."""
    attack = python("""
        made = []
        for family in {*range(3, 64)} - {10, 16}:
            for kind in (1, 2, 3, 5):
                try:
                    socket.socket(family, kind)
                    made.append(family)
                except OSError:
                    pass
        worked(*made) if made else blocked("none")
    """)
    assert freely(attack).worked == (_has_vsock() or ROOT)
    for params in ({"manifest": DENIED}, {"preset": "read-only"}):
        inside = box.attack(attack, **params)
        assert inside.blocked, inside.words


def test_sandboxes_do_not_share_a_loopback(box: Box) -> None:
    """A server in one sandbox, a client in another: localhost is not common ground."""
    serve = """
        import socket
        with socket.socket() as server:
            server.bind(("127.0.0.1", int(sys.argv[1])))
            server.listen()
            print("up", flush=True)
            server.settimeout(20)
            client, _ = server.accept()
            client.sendall(client.recv(16).upper())
            worked()
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with box.daemon.connect() as other:
        params = {"argv": [*python(serve), str(port)], "stream": True, "execution_id": "server"}
        server = other.start("execute", {**params, "manifest": DENIED})
        other.wait_until(lambda: other.has_answered(server) or "up" in other.output("server"))
        assert box.attack(TALK, "127.0.0.1", port, "tcp", manifest=DENIED).blocked
    with shouter("127.0.0.1", "tcp") as port:
        assert freely(TALK, "127.0.0.1", port, "tcp").worked
