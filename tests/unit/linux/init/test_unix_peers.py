"""connect() made by the init: sockets of the sandbox and named ones only."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from init_driver import Command, Init, Place, ready_init
from support.requirements import require

from sandboxd.linux.init_client import messages as wire

CONNECT = """
import errno, os, socket, sys, threading
def attempt(address, kind=socket.SOCK_STREAM, family=socket.AF_UNIX):
    try:
        s = socket.socket(family, kind)
        s.connect(address)
        print("connected", flush=True)
        return s
    except OSError as error:
        print(errno.errorcode[error.errno], flush=True)
def served(path, kind=socket.SOCK_STREAM, backlog=8):
    server = socket.socket(socket.AF_UNIX, kind)
    server.bind(path)
    server.listen(backlog)
    return server
"""
PEERS = wire.SetupFlag.UNIX_PEERS


class HostSocket:
    """A listening socket of the host in a folder that the sandbox sees at the same path."""

    def __init__(self, folder: Path, name: str = "host") -> None:
        self.path = folder / name
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.bind(str(self.path))
        self.socket.listen()
        self.socket.settimeout(0)
        self.path.chmod(0o777)

    def was_reached(self) -> bool:
        try:
            self.socket.accept()[0].close()
        except BlockingIOError:
            return False
        return True


@pytest.fixture
def folder() -> Iterator[Path]:
    found = Path(tempfile.mkdtemp(prefix="sbxp-", dir="/var/tmp"))
    found.chmod(0o777)
    yield found
    shutil.rmtree(found)


@pytest.fixture
def host(folder: Path) -> Iterator[HostSocket]:
    found = HostSocket(folder)
    yield found
    found.socket.close()


def place(folder: Path, *, writable: bool, user: bool = False, share: bool = False) -> Place:
    require("bubblewrap")
    bind = "--bind" if writable else "--ro-bind"
    mounts = (bind, str(folder), str(folder), *(["--share-net"] if share else []))
    return Place(bwrap=True, unprivileged=user, mounts=mounts)


def flags(share: bool) -> wire.SetupFlag:
    return PEERS | (wire.SetupFlag.SHARED_NETWORK if share else wire.SetupFlag(0))


def printed(command: Command) -> list[str]:
    ended = command.wait()
    assert ended.stderr == b"", ended.stderr
    return ended.stdout.decode().split()


@pytest.fixture(params=["own network", "shared network"])
def share(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "shared network")


AS_USER = [False, True] if os.geteuid() == 0 else [False]


@pytest.fixture(params=AS_USER, ids=lambda as_user: "user" if as_user else "self")
def user(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def peers(folder: Path, share: bool, user: bool) -> Iterator[Init]:
    with ready_init(
        place(folder, writable=True, user=user, share=share), flags=flags(share)
    ) as init:
        yield init


@pytest.mark.parametrize("writable", [False, True])
def test_socket_of_the_host_is_refused(
    folder: Path, host: HostSocket, share: bool, user: bool, writable: bool
) -> None:
    where = place(folder, writable=writable, user=user, share=share)
    script = CONNECT + f"attempt({str(host.path)!r})"
    with ready_init(where) as init:
        assert printed(init.python(script)) == ["connected"]
        assert host.was_reached()
    with ready_init(where, flags=flags(share)) as init:
        assert printed(init.python(script)) == ["EACCES"]
        assert not host.was_reached()


@pytest.mark.parametrize("writable", [False, True])
def test_socket_that_was_named_is_reached(
    folder: Path, host: HostSocket, share: bool, writable: bool
) -> None:
    status = host.path.stat()
    named = wire.Check(path=str(host.path), device=status.st_dev, inode=status.st_ino)
    other = HostSocket(folder, "other")
    script = CONNECT + f"attempt({str(host.path)!r}); attempt({str(other.path)!r})"
    where = place(folder, writable=writable, share=share)
    with other.socket, ready_init(where, flags=flags(share), sockets=[named]) as init:
        assert printed(init.python(script)) == ["connected", "EACCES"]
    assert host.was_reached()


@pytest.mark.parametrize("kind", ["SOCK_STREAM", "SOCK_SEQPACKET"])
def test_name_of_the_host_without_a_file_is_refused(
    folder: Path, share: bool, user: bool, kind: str
) -> None:
    """Also on a kernel whose Landlock does not know such names: no ruleset is applied here."""
    name = f"sandboxd-test-{os.getpid()}-{kind}"
    script = CONNECT + (
        f"attempt('\\0{name}', socket.{kind})\n"
        f"attempt('\\0{name}-longer', socket.{kind}); attempt('\\0{name[:-1]}', socket.{kind})\n"
    )
    where = place(folder, writable=True, user=user, share=share)
    with socket.socket(socket.AF_UNIX, getattr(socket, kind)) as server:
        server.bind(f"\0{name}")
        server.listen()
        server.setblocking(False)
        with ready_init(where) as init:
            expected = "connected" if share else "ECONNREFUSED"
            assert printed(init.python(script)) == [expected, "ECONNREFUSED", "ECONNREFUSED"]
        if share:
            server.accept()[0].close()
        with ready_init(where, flags=flags(share)) as init:
            assert printed(init.python(script)) == ["ECONNREFUSED"] * 3
        with pytest.raises(BlockingIOError):
            server.accept()


def test_name_that_a_program_outside_listens_at_is_closed_again(
    folder: Path, host: HostSocket
) -> None:
    """The command holds the listener, so that the name counts as its own until it is connected to:
    as when the name passes from the command to a program outside in that moment."""
    name, status = f"sandboxd-test-{os.getpid()}-handed", host.path.stat()
    named = wire.Check(path=str(host.path), device=status.st_dev, inode=status.st_ino)
    script = CONNECT + (
        f"door = attempt({str(host.path)!r})\n"
        "_, handed, _, _ = socket.recv_fds(door, 1, 1)\n"
        f"attempt('\\0{name}')\n"
    )
    where = place(folder, writable=True, share=True)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"\0{name}")
        listener.listen()
        listener.settimeout(20)

        def hand_over() -> None:
            host.socket.settimeout(20)
            with host.socket.accept()[0] as door:
                socket.send_fds(door, [b"x"], [listener.fileno()])

        for checked in (False, True):
            giver = threading.Thread(target=hand_over)
            giver.start()
            flag, sockets = (flags(True), [named]) if checked else (wire.SetupFlag(0), [])
            with ready_init(where, flags=flag, sockets=sockets) as init:
                words = ["connected", "ECONNREFUSED" if checked else "connected"]
                assert printed(init.python(script)) == words
                giver.join()
            with listener.accept()[0] as reached:
                assert reached.recv(1) == b""


@pytest.mark.parametrize("kind", ["SOCK_STREAM", "SOCK_SEQPACKET"])
def test_own_sockets_are_reached_by_every_spelling(peers: Init, folder: Path, kind: str) -> None:
    script = CONNECT + (
        f"os.chdir({str(folder)!r})\n"
        f"kind = socket.{kind}\n"
        "server = served('own', kind); os.symlink('own', 'link'); os.mkdir('d')\n"
        "os.rename('own', 'd/moved'); os.symlink('d/moved', 'own'); os.link('d/moved', 'd/hard')\n"
        "fd = os.open('d', os.O_PATH)\n"
        "for path in ['own', './link', 'd/../d/moved', os.path.abspath('own'), 'd/hard',\n"
        "             f'/proc/self/fd/{fd}/moved', f'/dev/fd/{fd}/hard']:\n"
        " attempt(path, kind); server.accept()\n"
        "private = served('/tmp/own', kind); attempt('/tmp/own', kind)\n"
        "attempt('\\0abstract', kind)\n"
        "abstract = served('\\0abstract', kind); attempt('\\0abstract', kind)\n"
    )
    abstract = ["ECONNREFUSED", "connected"]
    assert printed(peers.python(script)) == ["connected"] * 8 + abstract


def test_a_server_of_an_earlier_command_is_reached(peers: Init, folder: Path) -> None:
    """Its listener was made by a process that has ended."""
    serve = CONNECT + (
        f"server = served({str(folder / 'own')!r})\n"
        "if os.fork() == 0:\n os.setsid()\n server.accept()\n"
    )
    command = peers.python(serve, flags=wire.ExecFlag.KEEP_BACKGROUND)
    while not isinstance(command.receive(), wire.ExitedMessage):
        pass
    assert printed(peers.python(CONNECT + f"attempt({str(folder / 'own')!r})")) == ["connected"]
    command.wait()


def test_errors_are_the_kernels(peers: Init, folder: Path) -> None:
    script = CONNECT + (
        f"os.chdir({str(folder)!r}); open('file', 'w'); os.symlink('loop', 'loop')\n"
        "served('dead').close(); closed = served('closed'); os.chmod('closed', 0)\n"
        "for path in ['none', 'file', 'file/x', 'loop', 'dead']: attempt(path)\n"
        "attempt('closed') if os.getuid() else print('EACCES')\n"
        "full = served('full', backlog=0); first = attempt('full')\n"
        "s = socket.socket(socket.AF_UNIX); s.setblocking(False)\n"
        "try: s.connect('full')\nexcept BlockingIOError: print('EAGAIN')\n"
        "seq = served('seq', socket.SOCK_SEQPACKET); attempt('seq')\n"
        "import ctypes; libc = ctypes.CDLL(None, use_errno=True)\n"
        "for args in [(s.fileno(), ctypes.c_void_p(8), 16), (s.fileno(), b'', 4096),\n"
        "             (99, b'', 2),\n"
        "             (os.open('/', 0), b'\\1\\0/x', 5)]:\n"
        " libc.connect(*args); print(errno.errorcode[ctypes.get_errno()])\n"
    )
    # A file that no socket is bound to is refused before the kernel is asked.
    expected = "ENOENT ECONNREFUSED ENOTDIR ELOOP EACCES EACCES connected EAGAIN EPROTOTYPE"
    expected += " EFAULT EINVAL EBADF ENOTSOCK"
    assert printed(peers.python(script)) == expected.split()


def test_a_full_backlog_is_waited_for_and_others_are_served_meanwhile(
    peers: Init, folder: Path
) -> None:
    script = CONNECT + (
        f"os.chdir({str(folder)!r}); full = served('full', backlog=0); free = served('free')\n"
        "first = attempt('full')\n"
        "waiting = [threading.Thread(target=attempt, args=('full',)) for _ in range(3)]\n"
        "for t in waiting: t.start()\n"
        "attempt('free'); print('served', flush=True)\n"
        "for _ in range(4): full.accept()\n"
        "for t in waiting: t.join()\n"
    )
    found = printed(peers.python(script))
    assert found == ["connected", "connected", "served", "connected", "connected", "connected"]


def test_a_worker_that_is_killed_ends_the_call(peers: Init, folder: Path) -> None:
    script = CONNECT + (
        "import signal, time\n"
        f"os.chdir({str(folder)!r}); full = served('full', backlog=0); first = attempt('full')\n"
        "def children(): return {int(p) for p in os.listdir('/proc') if p.isdigit()\n"
        "  and open(f'/proc/{p}/stat').read().rsplit(')', 1)[1].split()[1] == '1'}\n"
        "before = children()\n"
        "t = threading.Thread(target=attempt, args=('full',)); t.start()\n"
        "while not children() - before: time.sleep(.01)\n"
        "for pid in children() - before: os.kill(pid, signal.SIGKILL)\n"
        "t.join()\n"
    )
    assert printed(peers.python(script)) == ["connected", "ECONNABORTED"]


def test_a_command_that_ends_while_it_connects_leaves_the_next_one_alone(
    peers: Init, folder: Path
) -> None:
    script = CONNECT + (
        f"os.chdir({str(folder)!r})\n"
        "full = served(f'full{os.getpid()}', backlog=0); attempt(f'full{os.getpid()}')\n"
        "attempt(f'full{os.getpid()}')\n"
    )
    for _ in range(3):
        command = peers.python(script)
        command.started()
        while not command.ended().stdout:
            pass
        command.send(wire.Kill())
        assert isinstance(command.wait().messages[-1], wire.Gone)
    fine = CONNECT + "server = served('/tmp/fine'); attempt('/tmp/fine')"
    assert printed(peers.python(fine)) == ["connected"]


def test_datagram_sockets_cannot_be_made_and_other_pairs_can(peers: Init) -> None:
    script = CONNECT + (
        "def made(function, *args):\n"
        " try: function(*args); print('made')\n"
        " except OSError as e: print(errno.errorcode[e.errno])\n"
        "for kind in (socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_STREAM,\n"
        "             socket.SOCK_SEQPACKET):\n"
        " for more in (0, socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK):\n"
        "  made(socket.socketpair, socket.AF_UNIX, kind | more)\n"
        "  made(socket.socket, socket.AF_UNIX, kind | more)\n"
        "made(socket.socket, socket.AF_INET, socket.SOCK_DGRAM)\n"
    )
    assert printed(peers.python(script)) == ["EPERM"] * 8 + ["made"] * 9


def test_other_families_connect_as_before(peers: Init) -> None:
    script = CONNECT + (
        "server = socket.create_server(('127.0.0.1', 0)); address = server.getsockname()\n"
        "attempt(address, family=socket.AF_INET)\n"
        "s = socket.socket(); s.setblocking(False); print(errno.errorcode[s.connect_ex(address)])\n"
        "server.accept(); server.accept(); print(s.connect_ex(address))\n"
        "server.close(); attempt(address, family=socket.AF_INET)\n"
        "u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.connect(('127.0.0.1', 9))\n"
        "u.send(b'x'); print(u.getpeername()[1])\n"
    )
    expected = ["connected", "EINPROGRESS", "0", "ECONNREFUSED", "9"]
    assert printed(peers.python(script)) == expected


RACE = """
import ctypes, time
libc = ctypes.CDLL(None)
own, host = sys.argv[1], sys.argv[2]
server = served(own, backlog=4096)
end = time.monotonic() + 1
def run(*jobs):
    threads = [threading.Thread(target=job, daemon=True) for job in jobs]
    for t in threads: t.start()
    threads[0].join()
def drain():
    while True: server.accept()[0].close()
def judge(s):
    if s.getpeername() == host: print('reached', flush=True)
"""


@pytest.mark.parametrize("what", ["address", "file", "descriptor"])
def test_what_is_exchanged_during_the_call_is_not_connected_to(
    folder: Path, host: HostSocket, share: bool, what: str
) -> None:
    """Address in memory, file at the path, descriptor: each alternates between own and host."""
    scripts = {
        "address": """
paths = [os.fsencode(own).ljust(100, b'\\0'), os.fsencode(host).ljust(100, b'\\0')]
address = ctypes.create_string_buffer(b'\\1\\0' + paths[0], 102)
def swap():
    while True:
        for path in paths: ctypes.memmove(ctypes.byref(address, 2), path, 100)
def connect():
    while time.monotonic() < end:
        with socket.socket(socket.AF_UNIX) as s: libc.connect(s.fileno(), address, 102)
run(connect, swap, drain)
""",
        "file": """
folder = os.path.dirname(own)
link = folder + '/link'; os.symlink(own, link)
def swap():
    while True:
        for target in (own, host):
            os.symlink(target, folder + '/next'); os.rename(folder + '/next', link)
def connect():
    while time.monotonic() < end:
        with socket.socket(socket.AF_UNIX) as s:
            try: s.connect(link)
            except OSError: pass
run(connect, swap, drain)
""",
        "descriptor": """
inet = socket.socket()
spot = os.dup(inet.fileno())
address = b'\\1\\0' + os.fsencode(host) + b'\\0'
def swap():
    while time.monotonic() < end:
        with socket.socket(socket.AF_UNIX) as s:
            os.dup2(s.fileno(), spot)
            os.dup2(inet.fileno(), spot)
def connect():
    while time.monotonic() < end: libc.connect(spot, address, len(address))
run(connect, swap, drain)
""",
    }
    argv = ("/usr/bin/python3", "-I", "-c", CONNECT + RACE + scripts[what])
    where = place(folder, writable=True, share=share)
    with ready_init(where, flags=flags(share)) as init:
        ended = init.exec(*argv, str(folder / "own"), str(host.path)).wait()
    assert ended.stderr == b""
    assert not host.was_reached()
