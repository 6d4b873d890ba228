"""Connections where the network is closed are noted, and the kernel decides as it did before."""

from __future__ import annotations

import errno
from collections.abc import Iterator

import pytest
from init_driver import Command, Init, Place, ready_init

from sandboxd.linux.init_client import messages as wire

pytestmark = pytest.mark.requires("bubblewrap")

CONNECT = """
import errno, socket, sys
def attempt(family, kind, address):
    with socket.socket(family, kind) as s:
        s.settimeout(5)
        try:
            s.connect(address)
        except OSError as e:
            print(errno.errorcode[e.errno], flush=True)
        else:
            print("connected", flush=True)
"""
QUERY = "b'\\x12\\x34\\1\\0\\0\\1\\0\\0\\0\\0\\0\\0\\3www\\7example\\3org\\0\\0\\1\\0\\1'"


@pytest.fixture(params=["self", pytest.param("user", marks=pytest.mark.requires("root"))])
def noticing(request: pytest.FixtureRequest) -> Iterator[Init]:
    place = Place(bwrap=True, unprivileged=request.param == "user")
    with ready_init(place, flags=wire.SetupFlag.NOTIFY) as init:
        yield init


def noticed(command: Command) -> tuple[list[wire.Channel], list[str]]:
    ended = command.wait()
    found = [m for m in ended.messages if isinstance(m, wire.Notified | wire.LookedUp)]
    assert ended.stderr == b"", ended.stderr
    return found, ended.stdout.decode().split()


def test_the_address_is_told_and_the_errno_is_the_kernels(noticing: Init) -> None:
    script = CONNECT + "attempt(socket.AF_INET, socket.SOCK_STREAM, ('1.2.3.4', 81))"
    assert noticed(noticing.python(script)) == ([wire.Notified("1.2.3.4", 81)], ["ENETUNREACH"])


def test_without_notify_the_same_happens_and_nothing_is_told() -> None:
    with ready_init(Place(bwrap=True)) as init:
        script = CONNECT + "attempt(socket.AF_INET, socket.SOCK_STREAM, ('1.2.3.4', 81))"
        assert noticed(init.python(script)) == ([], ["ENETUNREACH"])


def test_ipv6_is_told_and_ipv4_in_ipv6_is_ipv4(noticing: Init) -> None:
    script = CONNECT + (
        "attempt(socket.AF_INET6, socket.SOCK_DGRAM, ('2001:db8::7', 5))\n"
        "attempt(socket.AF_INET6, socket.SOCK_DGRAM, ('::ffff:9.8.7.6', 6))"
    )
    told = [wire.Notified("2001:db8::7", 5), wire.Notified("9.8.7.6", 6)]
    assert noticed(noticing.python(script))[0] == told


def test_a_repeated_address_is_told_once_and_all_are_bounded(noticing: Init) -> None:
    script = CONNECT + (
        "for port in [7] * 50 + list(range(1000, 1200)):\n"
        " attempt(socket.AF_INET, socket.SOCK_DGRAM, ('1.2.3.4', port))"
    )
    found, printed = noticed(noticing.python(script))
    assert len(printed) == 250
    assert len(found) == len(set(found)) == 64


def test_what_the_sandbox_serves_itself_is_reached_and_not_told(noticing: Init) -> None:
    script = CONNECT + (
        "server = socket.create_server(('127.0.0.1', 8085))\n"
        "attempt(socket.AF_INET, socket.SOCK_STREAM, ('127.0.0.1', 8085))\n"
        "attempt(socket.AF_INET, socket.SOCK_STREAM, ('127.0.0.1', 8086))"
    )
    told = [wire.Notified("127.0.0.1", 8086)]
    assert noticed(noticing.python(script)) == (told, ["connected", "ECONNREFUSED"])


def test_asking_for_a_route_is_not_a_connection(noticing: Init) -> None:
    script = CONNECT + (
        "attempt(socket.AF_INET, socket.SOCK_DGRAM, ('0.0.0.0', 8080))\n"
        "attempt(socket.AF_INET6, socket.SOCK_DGRAM, ('::', 8080))\n"
        "attempt(socket.AF_INET, socket.SOCK_DGRAM, ('1.2.3.4', 0))\n"
    )
    assert noticed(noticing.python(script))[0] == []


def test_unix_sockets_and_netlink_are_not_told(noticing: Init) -> None:
    script = CONNECT + (
        "server = socket.socket(socket.AF_UNIX); server.bind('/tmp/s'); server.listen()\n"
        "attempt(socket.AF_UNIX, socket.SOCK_STREAM, '/tmp/s')\n"
        "attempt(socket.AF_UNIX, socket.SOCK_STREAM, '/tmp/none')\n"
        "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0).sendto(bytes(20), (0, 0))"
    )
    assert noticed(noticing.python(script)) == ([], ["connected", "ENOENT"])


def test_sendto_with_an_address_is_told_with_the_name_of_a_query(noticing: Init) -> None:
    script = (
        "import socket\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
        f"try: s.sendto({QUERY}, ('10.0.0.53', 53))\nexcept OSError as e: print(e.errno)"
    )
    told = [wire.Notified("10.0.0.53", 53), wire.LookedUp("www.example.org")]
    assert noticed(noticing.python(script)) == (told, [str(errno.ENETUNREACH)])


def test_a_resolver_is_let_ask_its_question_so_that_the_name_is_told() -> None:
    """A nameserver elsewhere cannot be connected to: the resolver would never say the name."""
    script = CONNECT + (
        "attempt(socket.AF_INET, socket.SOCK_DGRAM, ('10.0.0.53', 53))\n"
        "attempt(socket.AF_INET, socket.SOCK_STREAM, ('10.0.0.53', 53))\n"
        "attempt(socket.AF_INET, socket.SOCK_DGRAM, ('10.0.0.53', 54))"
    )
    told = [wire.Notified("10.0.0.53", 53), wire.Notified("10.0.0.53", 54)]
    flags = wire.SetupFlag.NOTIFY | wire.SetupFlag.UNIX_PEERS
    with ready_init(Place(bwrap=True), flags=flags) as init:
        assert noticed(init.python(script)) == (told, ["connected", "ENETUNREACH", "ENETUNREACH"])
    with ready_init(Place(bwrap=True), flags=wire.SetupFlag.UNIX_PEERS) as init:
        assert noticed(init.python(script)) == ([], ["ENETUNREACH"] * 3)


SOCKETS = """
import errno, socket
for family in (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX):
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK,
                 socket.SOCK_RAW, 10):
        try:
            socket.socket(family, kind).close()
        except OSError as e:
            print(errno.errorcode[e.errno])
        else:
            print("made")
"""


@pytest.mark.filterwarnings("ignore")
def test_where_no_internet_socket_can_be_made_the_attempt_is_told() -> None:
    with ready_init(Place(bwrap=True), flags=wire.SetupFlag.NO_INET) as init:
        ended = init.python(SOCKETS).wait()
        assert ended.stdout.decode().split()[:13] == ["EPERM"] * 10 + ["made"] * 3
        told = [m for m in ended.messages if isinstance(m, wire.RefusedSocket)]
        kinds = wire.RefusedKind
        assert [m.kind for m in told] == [kinds.STREAM, kinds.BLOCKING_DATAGRAM, kinds.DATAGRAM]
    with ready_init(Place(bwrap=True)) as init:
        assert init.python(SOCKETS).wait().stdout.decode().split()[:3] == ["made"] * 3


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("SOCK_STREAM", [wire.RefusedKind.UNIX]),
        ("SOCK_SEQPACKET", [wire.RefusedKind.UNIX]),
        ("SOCK_STREAM | socket.SOCK_NONBLOCK", []),  # nscd is asked so
        ("SOCK_DGRAM", []),  # and the log is written so
    ],
)
def test_where_no_unix_socket_can_be_made_the_attempt_is_told(
    kind: str, told: list[wire.RefusedKind]
) -> None:
    script = (
        "import socket\n"
        "one, other = socket.socketpair(); one.send(b'x'); other.recv(1)\n"
        "for _ in range(2):\n"
        f" try: socket.socket(socket.AF_UNIX, socket.{kind}).close(); print('made')\n"
        " except PermissionError: print('refused')\n"
        "socket.socket(socket.AF_INET).close()\n"
    )
    for flags, word in ((wire.SetupFlag.NO_UNIX, "refused"), (wire.SetupFlag(0), "made")):
        with ready_init(Place(bwrap=True), flags=flags) as init:
            ended = init.python(script).wait()
            assert ended.stdout.decode().split() == [word] * 2
            found = [m.kind for m in ended.messages if isinstance(m, wire.RefusedSocket)]
            assert found == (told if flags else [])


def test_an_address_that_cannot_be_read_is_the_kernels_affair(noticing: Init) -> None:
    script = (
        "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n"
        "import socket\ns = socket.socket()\n"
        "print(libc.connect(s.fileno(), ctypes.c_void_p(8), 16), ctypes.get_errno())"
    )
    assert noticed(noticing.python(script)) == ([], ["-1", str(errno.EFAULT)])


def test_each_command_of_a_sandbox_gets_its_own(noticing: Init) -> None:
    script = CONNECT + (
        "import os\nif os.fork():\n os.wait()\nelse:\n"
        " os.setsid()\n attempt(socket.AF_INET, socket.SOCK_STREAM, ('1.2.3.4', %d))"
    )
    first, second = (noticing.python(script % port) for port in (21, 22))
    assert noticed(first)[0] == [wire.Notified("1.2.3.4", 21)]
    assert noticed(second)[0] == [wire.Notified("1.2.3.4", 22)]


def test_connect_still_works_when_the_command_has_killed_its_reaper(noticing: Init) -> None:
    """With the reaper's end of it closed, connect would answer ENOSYS."""
    script = CONNECT + (
        "import os, signal, time\nreaper = os.getppid()\nos.kill(reaper, signal.SIGKILL)\n"
        "while os.getppid() == reaper: time.sleep(.01)\n"
        "attempt(socket.AF_INET, socket.SOCK_STREAM, ('1.2.3.4', 81))"
    )
    flags = wire.ExecFlag.KEEP_BACKGROUND  # in a pid namespace others have none
    found, printed = noticed(noticing.python(script, flags=flags))
    assert printed == ["ENETUNREACH"]
    assert found == [wire.Notified("1.2.3.4", 81)]


def test_a_command_killed_while_it_connects_leaves_the_next_one_alone(noticing: Init) -> None:
    storm = CONNECT + "while 1: attempt(socket.AF_INET, socket.SOCK_DGRAM, ('1.2.3.4', 9))"
    for _ in range(5):
        command = noticing.python(storm)
        command.started()
        while not command.ended().stdout:
            pass
        command.send(wire.Kill())
        assert isinstance(command.wait().messages[-1], wire.Gone)
    script = CONNECT + "attempt(socket.AF_INET, socket.SOCK_STREAM, ('1.2.3.4', 81))"
    assert noticed(noticing.python(script))[1] == ["ENETUNREACH"]
