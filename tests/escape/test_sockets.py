"""Unix sockets of the host: abstract and with a path, and descriptors sent through them."""

from __future__ import annotations

import array
import os
import shutil
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from support.attacks import Box, Victim, freely, python, verdict, weakest
from support.backends import running_backend
from support.runs import Ran

pytestmark = pytest.mark.isolation

CONNECT = python("""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(20)
        client.connect(args[0].replace("@", "\\0", 1))
        worked() if client.recv(2) == b"hi" else blocked("no answer")
""")


@contextmanager
def greeter(address: str | bytes, *, hand_over: int | None = None) -> Iterator[None]:
    """A service of the host that says "hi" to each client, and may hand over a descriptor."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind(address)
        server.listen()

        def serve() -> None:
            while True:
                try:
                    client, _ = server.accept()
                except OSError:
                    return
                with client, suppress(OSError):
                    rights = array.array("i", [] if hand_over is None else [hand_over])
                    with_it = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)] if rights else []
                    client.sendmsg([b"hi"], with_it)
                    client.settimeout(20)
                    client.recv(1)  # until the other side has gone

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


@pytest.mark.parametrize("network", ["inherit", "deny"])
def test_abstract_socket_of_the_host_is_not_reached(box: Box, network: str) -> None:
    """Connect to a service by an abstract name: it has no path that could be hidden."""
    name = f"sandboxd-test-{os.getpid()}"
    with greeter(b"\0" + name.encode()):
        assert freely(CONNECT, f"@{name}").worked
        assert box.attack(CONNECT, f"@{name}", manifest=weakest(network=network)).blocked


@pytest.mark.requires("bubblewrap")
def test_abstract_socket_is_not_reached_without_landlock() -> None:
    """Landlock knows such names from Linux 6.12 on; before, the init alone refuses them."""
    name, own = f"sandboxd-test-{os.getpid()}", f"sandboxd-test-{os.getpid()}-own"
    without = str(Path(__file__).parents[1] / "support" / "without_syscalls.py")
    prefix = [sys.executable, without, "landlock"]
    with greeter(b"\0" + name.encode()), running_backend("bubblewrap", prefix=prefix) as daemon:
        box = Box("bubblewrap", daemon)
        assert freely(CONNECT, f"@{name}").worked
        for network in ("inherit", "deny"):
            manifest = weakest(network=network)
            assert box.attack(CONNECT, f"@{name}", manifest=manifest).blocked
            assert box.attack(OWN_SOCKETS, f"@{own}", manifest=manifest).worked
        box.close()


@pytest.fixture
def service() -> Iterator[str]:
    """A service with a socket where such things are: the runtime folder of root, else /tmp."""
    parent = "/run" if os.geteuid() == 0 else None
    folder = Path(tempfile.mkdtemp(prefix="sbxs-", dir=parent))
    with greeter(str(folder / "socket")):
        yield str(folder / "socket")
    shutil.rmtree(folder)


def test_socket_of_the_host_is_not_reached(box: Box, service: str) -> None:
    """Connect to a service by its path: agents, buses, the container engine."""
    assert freely(CONNECT, service).worked
    for manifest in ({}, {"base": "host"}):
        assert box.attack(CONNECT, service, manifest=manifest).blocked


def test_socket_behind_a_symlink_is_not_reached(box: Box, workspace: Path, service: str) -> None:
    """The same through a symlink in the workspace."""
    link = workspace / "link"
    link.symlink_to(service)
    assert freely(CONNECT, link).worked
    assert box.attack(CONNECT, link, manifest=weakest(workspace)).blocked


def test_datagram_pair_is_not_connected_to_a_service(box: Box) -> None:
    """A socketpair needs no socket(2); one end of a datagram pair can be connected elsewhere."""
    attack = python("""
        mine, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        mine.connect(args[0])
        mine.send(b"attack")
        worked()
    """)
    folder = Path(tempfile.mkdtemp(prefix="sbxs-"))
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
            server.settimeout(10)
            server.bind(str(folder / "socket"))
            assert freely(attack, folder / "socket").worked
            assert server.recv(16) == b"attack"
            assert box.attack(attack, folder / "socket").blocked
    finally:
        shutil.rmtree(folder)


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder with a short name, which manifests make visible."""
    with tempfile.TemporaryDirectory(prefix="sbxs-") as short:
        folder = Path(short).resolve() / "w"
        folder.mkdir()
        yield folder


def showing(folder: Path, access: str, network: str) -> dict[str, Any]:
    return {"syscall_policy": "inherit", "network": network, f"fs_{access}_allow": [str(folder)]}


@pytest.mark.parametrize("access", ["read", "write"])
@pytest.mark.parametrize("network", ["inherit", "deny"])
def test_socket_of_the_host_in_a_visible_folder_is_not_reached(
    box: Box, shared: Path, access: str, network: str
) -> None:
    """A database, an agent or an engine that keeps its socket in a folder that was allowed."""
    path = shared / "socket"
    link = shared / "link"
    link.symlink_to(path)
    hard = shared / "hard"
    with greeter(str(path)):
        os.link(path, hard)
        manifest = showing(shared, access, network)
        for spelling in (path, link, hard, f"/proc/self/root{path}", f"{shared}/../w/socket"):
            assert freely(CONNECT, spelling).worked
            assert box.attack(CONNECT, spelling, manifest=manifest).blocked


@pytest.mark.parametrize("network", ["inherit", "deny"])
def test_socket_of_the_host_is_not_reached_from_a_persistent_sandbox(
    box: Box, shared: Path, network: str
) -> None:
    with greeter(str(shared / "socket")):
        manifest = showing(shared, "write", network)
        name = box.connection.call("sandbox/create", {"manifest": manifest})["sandbox"]
        for _ in range(2):
            ran = box.connection.call(
                "execute", {"argv": [*CONNECT, str(shared / "socket")], "sandbox": name}
            )
            assert verdict(Ran(ran)).blocked
        box.connection.call("sandbox/destroy", {"sandbox": name})
        assert freely(CONNECT, shared / "socket").worked


@pytest.mark.parametrize("network", ["inherit", "deny"])
@pytest.mark.requires("bubblewrap")
def test_socket_that_is_itself_allowed_is_reached(box: Box, shared: Path, network: str) -> None:
    """No attack: what the caller names works, where Unix sockets can be made at all."""
    path, other = shared / "socket", shared / "other"
    with greeter(str(path)), greeter(str(other)):
        for access in ("read", "write"):
            manifest = {"network": network, f"fs_{access}_allow": [str(path), str(shared)]}
            found = box.attack(CONNECT, path, manifest=manifest)
            assert found.worked == box.has_unix_sockets, found.words
            assert box.attack(CONNECT, other, manifest=manifest).blocked


@pytest.mark.requires("bubblewrap")
def test_a_refused_socket_is_told_and_not_proposed(box: Box, shared: Path) -> None:
    """No attack: the command says nothing and succeeds; the init knows what it refused. A program
    that listens outside (tmux, say) may run what it is asked to: only the user can allow that."""
    live, stale, own = shared / "live", shared / "stale", shared / "own"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(stale))
    swallow = python("""
        for path in args:
            try:
                socket.socket(socket.AF_UNIX).connect(path)
            except OSError:
                pass
        end(0)
    """)
    manifest = {"syscall_policy": "inherit"}
    workspace: dict[str, Any] = {"preset": "workspace-write", "workspace": str(shared)}
    with greeter(str(live)):
        ran = box.run(
            *swallow, str(live), str(live), str(stale), str(own), manifest=manifest, **workspace
        )
        if not box.has_unix_sockets:
            assert ran.exited(0), ran.story
            assert ran.denials == []
            return
        told = {d["target"]: (d["kind"], d["confidence"], d["remedy"]) for d in ran.denials}
        assert told == {
            str(live): ("network", "high", None),
            str(stale): ("network", "low", None),
        }
        assert "with your rights" in next(
            d["message"] for d in ran.denials if d["target"] == str(live)
        )
        allowed = {**manifest, "fs_read_allow": [str(live)]}
        assert box.attack(CONNECT, live, manifest=allowed, **workspace).worked


SEND = python("""
    how, path = args
    if how == "pair":
        mine, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    else:
        mine = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    if how == "sendto":
        mine.sendto(b"attack", path)
    elif how == "connect":
        mine.connect(path)
        mine.send(b"attack")
    else:
        mine.sendmsg([b"attack"], [], 0, path)
    worked()
""")


@pytest.mark.parametrize("network", ["inherit", "deny"])
@pytest.mark.parametrize("how", ["sendto", "sendmsg", "connect", "pair"])
def test_datagram_does_not_reach_a_visible_socket(
    box: Box, shared: Path, how: str, network: str
) -> None:
    """Datagrams need no connection: sendto and sendmsg carry the address."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        server.settimeout(10)
        server.bind(str(shared / "socket"))
        assert freely(SEND, how, shared / "socket").worked
        assert server.recv(16) == b"attack"
        for access in ("read", "write"):
            manifest = showing(shared, access, network)
            assert box.attack(SEND, how, shared / "socket", manifest=manifest).blocked
        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.recv(16)


OWN_SOCKETS = python("""
    import threading
    args[0] = args[0].replace("@", "\\0", 1)
    server = socket.socket(socket.AF_UNIX)
    server.bind(args[0])
    server.listen()
    threading.Thread(target=lambda: server.accept()[0].sendall(b"hi")).start()
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(args[0])
        worked() if client.recv(2) == b"hi" else blocked("no answer")
""")


@pytest.mark.parametrize("network", ["inherit", "deny"])
@pytest.mark.requires("bubblewrap")
def test_own_sockets_work(box: Box, shared: Path, network: str) -> None:
    """No attack: servers of the command's own, where Unix sockets can be made at all."""
    for path in (shared / "own", "/tmp/own"):
        manifest = showing(shared, "write", network)
        found = box.attack(OWN_SOCKETS, path, manifest=manifest)
        assert found.worked == box.has_unix_sockets, found.words


TAKE_FOLDER = python("""
    import array
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(20)
        client.connect(args[0])
        _, ancillary, _, _ = client.recvmsg(2, 64)
        folder = array.array("i", ancillary[0][2])[0]
        fd = os.open("victim", os.O_WRONLY | os.O_TRUNC, dir_fd=folder)
        os.write(fd, b"changed")
        worked()
""")


def test_descriptor_of_a_folder_from_outside_does_not_allow_writes(
    box: Box, workspace: Path, victim: Victim
) -> None:
    """An accomplice outside sends a folder's descriptor through a socket in the workspace."""
    with tempfile.TemporaryDirectory(prefix="sbxs-") as short:
        folder = os.open(victim.path.parent, os.O_PATH | os.O_DIRECTORY)
        shared = Path(short).resolve() / "w"
        shared.mkdir()
        try:
            with greeter(str(shared / "socket"), hand_over=folder):
                assert freely(TAKE_FOLDER, shared / "socket").worked
                assert victim.was_hit()
                manifest = weakest(shared)
                assert box.attack(TAKE_FOLDER, shared / "socket", manifest=manifest).blocked
                assert victim.untouched
        finally:
            os.close(folder)


def test_descriptor_is_not_sent_out_over_an_abstract_socket(box: Box) -> None:
    """A command hands what it has open to an accomplice outside, past the daemon."""
    attack = python("""
        import array
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.connect("\\0" + args[0])
            rights = array.array("i", [os.open("/", os.O_RDONLY)])
            client.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
            worked()
    """)
    name = f"sandboxd-test-out-{os.getpid()}"
    with greeter(b"\0" + name.encode()):
        assert freely(attack, name).worked
        assert box.attack(attack, name).blocked


def test_folder_passed_from_one_sandbox_to_another_is_not_writable_there(
    box: Box, workspace: Path, outside: Path, victim: Victim
) -> None:
    """A command that may write a folder sends its descriptor to one that may only read it."""
    give = """
        import array
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
            server.bind(args[0])
            server.listen()
            print("up", flush=True)
            client, _ = server.accept()
            rights = array.array("i", [os.open(args[1], os.O_PATH)])
            client.sendmsg([b"hi"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
            client.recv(1)
            worked()
    """
    with tempfile.TemporaryDirectory(prefix="sbxs-") as short:
        shared = Path(short).resolve() / "w"
        shared.mkdir()
        address = str(shared / "socket")
        with box.daemon.connect() as other:
            giver = other.start("execute", {
                "argv": [*python(give), address, str(outside)], "stream": True,
                "execution_id": "giver", "manifest": weakest(shared, outside),
            })  # fmt: skip
            other.wait_until(lambda: other.has_answered(giver) or "up" in other.output("giver"))
            if other.has_answered(giver):
                # No socket can be made there at all.
                assert "blocked" in other.output("giver")
                return
            manifest = weakest(shared, fs_read_allow=[str(outside)])
            assert box.attack(TAKE_FOLDER, address, manifest=manifest).blocked
    assert victim.untouched
