"""A clone may get the network namespace of one that has ended, if nothing has happened in it."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.attacks import PYTHON
from support.backends import running_backend
from support.daemon import Daemon, stdout_of
from support.rpc import Connection

pytestmark = [pytest.mark.isolation, pytest.mark.requires("bubblewrap")]
# The kernel's number of a network namespace (SO_NETNS_COOKIE), which is never used twice.
NAME = "import socket; print(socket.socket(socket.AF_UNIX).getsockopt(socket.SOL_SOCKET, 71, 8))"
ATTEMPTS = 12
# Each of these leaves something behind, or could: a flow label outlives its socket, and so does
# the route that the kernel caches for RTM_GETROUTE, with the time at which it was made. Through
# Unix sockets that listen or connect a descriptor can be passed out.
TOUCHED = {
    "nothing is sent": "socket.socket(socket.AF_INET, socket.SOCK_DGRAM)",
    "version 6": "socket.socket(socket.AF_INET6)",
    "a flow label": (
        "socket.socket(socket.AF_INET6, socket.SOCK_DGRAM).setsockopt(41, 32, "
        "socket.inet_pton(socket.AF_INET6, '::1') + struct.pack('>I', 7) "
        "+ struct.pack('=BBHHHI', 0, 255, 1, 60, 60, 0))"
    ),
    "netlink": "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0).bind((0, 0))",
    "a cached route": (
        "to = struct.pack('=BBBBBBBBIHH', 10, 128, 0, 0, 0, 0, 0, 0, 0, 20, 1) "
        "+ socket.inet_pton(socket.AF_INET6, '::1')\n"
        "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0).send("
        "struct.pack('=IHHII', 16 + len(to), 26, 1, 1, 0) + to)"
    ),
    "a connection": (
        "a = socket.create_server(('127.0.0.1', 0)); socket.create_connection(a.getsockname())"
    ),
    "a Unix socket that listens": (
        r"a = socket.socket(socket.AF_UNIX); a.bind('\0name'); a.listen()"
    ),
}
HARMLESS = {
    "no socket": "pass",
    "a Unix socket": r"socket.socket(socket.AF_UNIX).bind('\0name')",
    "a pair of Unix sockets": "a = socket.socketpair(); socket.send_fds(a[0], [b'x'], [0])",
    "a Unix socket that finds no peer": (
        "socket.socket(socket.AF_UNIX).connect_ex('/run/nscd/missing')"
    ),
}
# Everything by which a file of /proc/net can be found again, passed to the socket `peer`.
PASS_OUT = """
held = [os.open("/proc/self/net/" + name, flags)
        for name in ("unix", "dev_snmp6") for flags in (os.O_RDONLY, os.O_PATH)]
socket.send_fds(peer, [b"x"], held)
"""
# Which of the two sides listens, at this path of a folder that both can write.
MEETINGS = {
    "the sandbox listens": """
server = socket.socket(socket.AF_UNIX)
server.bind("{path}.new"); server.listen()
os.rename("{path}.new", "{path}")
peer = server.accept()[0]
""",
    "the sandbox connects": """
peer = socket.socket(socket.AF_UNIX)
peer.connect("{path}")
""",
}


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    """With templates, in a pass without them too."""
    env = {"SANDBOXD_POOL_TEMPLATE": "true"}
    with running_backend("bubblewrap", env=env, config="[pool]\nenabled = false\n") as daemon:
        yield daemon


def namespace_of(connection: Connection, code: str = "pass") -> str:
    argv = [PYTHON, "-c", f"import socket, struct\n{code}\n{NAME}"]
    manifest = {"network": "deny"}
    return stdout_of(connection.call("execute", {"argv": argv, "manifest": manifest}))


def is_used_again(connection: Connection, code: str) -> bool:
    """Whether one in which the code ran is given to another clone. A sandbox may still be ending
    when the next one is made, and gets another one then."""
    seen = {namespace_of(connection, code)}
    for _ in range(ATTEMPTS):
        name = namespace_of(connection, code)
        if name in seen:
            return True
        seen.add(name)
        time.sleep(0.05)
    return False


@pytest.mark.parametrize("what", HARMLESS)
def test_one_in_which_nothing_happened_is_used_again(daemon: Daemon, what: str) -> None:
    with daemon.connect() as connection:
        assert is_used_again(connection, HARMLESS[what])


@pytest.mark.parametrize("what", TOUCHED)
def test_one_in_which_a_socket_was_made_is_not(daemon: Daemon, what: str) -> None:
    with daemon.connect() as connection:
        assert not is_used_again(connection, TOUCHED[what])


def take(path: Path, listener: socket.socket | None, kept: list[int]) -> None:
    """What a command passes out. Without a listener outside the command listens at the path."""
    with socket.socket(socket.AF_UNIX) as mine:
        if listener is not None:
            with listener.accept()[0] as peer:
                kept += socket.recv_fds(peer, 1, 8)[1]
            return
        deadline = time.monotonic() + 60
        while not path.exists():
            assert time.monotonic() < deadline, "the command does not listen"
            time.sleep(0.02)
        mine.connect(str(path))
        kept += socket.recv_fds(mine, 1, 8)[1]
        path.unlink()


@pytest.mark.parametrize("how", MEETINGS)
def test_one_whose_files_are_still_open_is_not(daemon: Daemon, tmp_path: Path, how: str) -> None:
    """A command passes files of its /proc/net out, and who has them would read of the next one."""
    path, kept, listener = tmp_path.resolve() / "socket", list[int](), None
    writable = [str(tmp_path.resolve())]
    with daemon.connect() as connection, ExitStack() as stack:
        if how == "the sandbox connects":
            listener = stack.enter_context(socket.socket(socket.AF_UNIX))
            listener.bind(str(path))
            listener.listen()
            writable.append(str(path))
        code = MEETINGS[how].format(path=path) + PASS_OUT
        argv = [PYTHON, "-c", f"import os, socket\n{code}\n{NAME}"]
        params = {"argv": argv, "manifest": {"network": "deny", "fs_write_allow": writable}}
        seen = set()
        for _ in range(ATTEMPTS):
            number = connection.start("execute", params)
            take(path, listener, kept)
            seen.add(stdout_of(connection.result(number)))
            time.sleep(0.05)
        shown = [os.read(fd, 64) for fd in kept[::4]]
        for fd in kept:
            os.close(fd)
    assert all(b"RefCount" in one for one in shown), "the control: what was passed can be read"
    assert len(shown) == len(seen) == ATTEMPTS


def run_and(
    connection: Connection, daemon: Daemon, folder: Path, act: Callable[[int], None]
) -> str:
    """The number of a sandbox's namespace. `act` gets the pid of its init while a command runs."""
    number, stop = folder / "number", folder / "stop"
    script = f"""{NAME.replace("print(", "number = repr(")}
open("{number}.new", "w").write(number)
import os, time
os.rename("{number}.new", "{number}")
while not os.path.exists("{stop}"):
    time.sleep(0.02)
"""
    manifest = {"network": "deny", "fs_write_allow": [str(folder)]}
    request = connection.start("execute", {"argv": [PYTHON, "-c", script], "manifest": manifest})
    deadline = time.monotonic() + 60
    while not number.exists():
        assert time.monotonic() < deadline, "the command did not start"
        time.sleep(0.02)
    tree = {one.pid: one for one in daemon.descendants()}
    act(next(one.parent for one in tree.values() if one.name.startswith("python")))
    stop.touch()
    connection.result(request)
    found = number.read_text()
    number.unlink()
    stop.unlink()
    return found


def test_one_of_an_init_that_was_killed_is_not(daemon: Daemon, tmp_path: Path) -> None:
    def kill(pid: int) -> None:
        os.kill(pid, signal.SIGKILL)

    with daemon.connect() as connection:
        seen = {run_and(connection, daemon, tmp_path.resolve(), kill) for _ in range(ATTEMPTS)}
    assert len(seen) == ATTEMPTS


@pytest.mark.requires("root")
def test_one_with_a_socket_that_somebody_outside_holds_is_not(
    daemon: Daemon, tmp_path: Path
) -> None:
    """The next sandbox could connect to its name."""
    held: list[socket.socket] = []

    def hold(pid: int) -> None:
        def enter() -> None:
            with open(f"/proc/{pid}/ns/net") as namespace:
                assert ctypes.CDLL(None).setns(namespace.fileno(), 0) == 0
            held.append(socket.socket(socket.AF_UNIX))

        thread = threading.Thread(target=enter)
        thread.start()
        thread.join()

    with daemon.connect() as connection:
        seen = {run_and(connection, daemon, tmp_path.resolve(), hold) for _ in range(ATTEMPTS)}
    for one in held:
        one.close()
    assert len(held) == len(seen) == ATTEMPTS


def test_two_at_the_same_time_have_two(daemon: Daemon) -> None:
    script = f"{NAME}\nimport time; time.sleep(0.5)"
    connections = [daemon.connect() for _ in range(6)]
    try:
        for _ in range(3):
            params = {"argv": [PYTHON, "-c", script], "manifest": {"network": "deny"}}
            asked = [one.start("execute", params) for one in connections]
            found = [one.result(number) for one, number in zip(connections, asked, strict=True)]
            names = [stdout_of(one) for one in found]
            assert len(set(names)) == len(names)
    finally:
        for one in connections:
            one.close()
