"""The daemon as the target: its code, config, socket, memory, and the ids of other connections."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.attacks import Box, Victim, freely, python, weakest
from support.backends import running_backend
from support.daemon import ROOT as CHECKOUT
from support.rpc import RpcError

pytestmark = pytest.mark.isolation

WRITE = python("open(args[0], 'a').write('# changed'); worked()")
READ = python("worked() if args[1] in open(args[0]).read() else blocked('other content')")
CONFIG = "# a config with a key in it\nmax_executions = 1024\n"


@dataclass
class Own:
    """A daemon that runs from code which its user may write, and the folder with all of that."""

    box: Box
    folder: Path
    code: Path


@pytest.fixture(scope="module")
def own(linux_backend: Box, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Own]:
    folder = tmp_path_factory.mktemp("own").resolve()
    ignored = shutil.ignore_patterns("*.o", "tests")
    for name in ("sandboxd", "proto/sandboxd_proto"):
        shutil.copytree(CHECKOUT / name, folder / Path(name).name, ignore=ignored)
    env = {"PYTHONPATH": str(folder)}
    with running_backend(
        linux_backend.backend, config=CONFIG, env=env, checkout=folder
    ) as daemon:  # fmt: skip
        box = Box(linux_backend.backend, daemon)
        yield Own(box, folder, folder / "sandboxd" / "__main__.py")
        box.close()


def test_code_of_the_daemon_is_not_writable(own: Own) -> None:
    """Allow the folder that contains the daemon's code, and change the code."""
    victim = own.code
    before = victim.read_text()
    assert freely(WRITE, victim).worked
    assert victim.read_text() != before
    victim.write_text(before)
    assert own.box.attack(WRITE, victim, manifest=weakest(own.folder)).blocked
    assert victim.read_text() == before


def test_new_module_does_not_join_the_daemons_code(own: Own) -> None:
    """Add a module that Python would import before the real one."""
    planted = own.folder / "sandboxd" / "anyio.py"
    assert freely(WRITE, planted).worked
    planted.unlink()
    assert own.box.attack(WRITE, planted, manifest=weakest(own.folder)).blocked
    assert not planted.exists()


def test_folder_above_the_code_is_not_exchanged(own: Own) -> None:
    """Rename the package away and put another one in its place."""
    attack = python("""
        os.rename(args[0], args[0] + "-old")
        os.mkdir(args[0])
        worked()
    """)
    package = own.folder / "sandboxd"
    assert own.box.attack(attack, package, manifest=weakest(own.folder)).blocked
    assert own.code.exists()
    assert freely(attack, package).worked
    package.rmdir()
    os.rename(f"{package}-old", package)


def test_code_of_the_daemon_cannot_be_a_workspace(own: Own) -> None:
    """Ask for the package itself as writable."""
    with pytest.raises(RpcError) as refusal:
        own.box.run("true", manifest=weakest(own.folder / "sandboxd"))
    assert refusal.value.kind == "PathDenied"


@pytest.mark.parametrize("field", ["fs_read_allow", "fs_write_allow"])
def test_config_of_the_daemon_is_hidden(own: Own, field: str) -> None:
    """Allow the folder that contains the config; it may hold keys, and it is the ceiling."""
    config = own.box.daemon.home / ".config" / "sandboxd" / "config.toml"
    assert freely(READ, config, "a config with a key").worked
    manifest = weakest() | {field: [str(own.box.daemon.home)]}
    assert own.box.attack(READ, config, "a config with a key", manifest=manifest).blocked
    assert own.box.attack(WRITE, config, manifest=manifest).blocked
    assert config.read_text() == CONFIG


def test_config_is_not_replaced_by_renaming_what_is_above(own: Own) -> None:
    """Rename `.config` away and write a config of one's own."""
    attack = python("""
        os.rename(args[0], args[0] + "-old")
        os.makedirs(args[0] + "/sandboxd")
        open(args[0] + "/sandboxd/config.toml", "w").write("backend = 'none'")
        worked()
    """)
    settings = own.box.daemon.home / ".config"
    manifest = weakest(own.box.daemon.home)
    assert own.box.attack(attack, settings, manifest=manifest).blocked
    assert (settings / "sandboxd" / "config.toml").read_text() == CONFIG
    assert freely(attack, settings).worked
    shutil.rmtree(settings)
    os.rename(f"{settings}-old", settings)


def test_socket_is_not_replaced(own: Own) -> None:
    """Remove the daemon's socket and listen there: clients would talk to the attacker."""
    attack = python("""
        os.unlink(args[0])
        worked()
    """)
    path = Path(own.box.daemon.socket)
    manifest = weakest(own.box.daemon.folder)
    assert own.box.attack(attack, path, manifest=manifest).blocked
    assert path.is_socket()
    with pytest.raises(RpcError) as refusal:
        own.box.run("true", manifest=weakest(path.parent))
    assert refusal.value.kind == "PathDenied"
    spare = path.parent / "spare"
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(spare))
    assert freely(attack, spare).worked


@pytest.mark.parametrize("what", ["mem", "environ", "maps", "fd/0", "root", "cwd"])
def test_daemon_is_not_looked_into(box: Box, what: str) -> None:
    """/proc/PID of the daemon. The control is a process that did not close itself."""
    attack = python("""
        path = f"/proc/{args[0]}/{args[1]}"
        os.readlink(path) if os.path.islink(path) else open(path, "rb").read(1 << 12)
        worked()
    """)
    if what == "mem":
        attack = python("open(f'/proc/{args[0]}/mem', 'rb'); worked()")
    with subprocess.Popen(["sleep", "60"]) as control:
        assert freely(attack, control.pid, what).worked
        control.kill()
    assert box.attack(attack, box.daemon.pid, what).blocked


def test_daemon_is_not_traced(box: Box) -> None:
    """ptrace of the daemon. Not even another process of the user outside may do that."""
    attack = python("""
        c("ptrace", 16, int(args[0]), 0, 0)
        os.waitpid(int(args[0]), 0x40000000)
        c("ptrace", 17, int(args[0]), 0, 0)
        worked()
    """)
    anybody = "import ctypes, time; ctypes.CDLL(None).prctl(0x59616D61, -1, 0, 0, 0); print(); "
    command = [sys.executable, "-I", "-S", "-u", "-c", anybody + "time.sleep(60)"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as control:
        assert control.stdout is not None
        control.stdout.readline()
        assert freely(attack, control.pid).worked
        control.kill()
    assert box.attack(attack, box.daemon.pid).blocked
    if os.geteuid() != 0:
        assert freely(attack, box.daemon.pid).blocked


@pytest.fixture
def running(box: Box) -> Iterator[str]:
    """An execution of another connection."""
    with box.daemon.connect() as other:
        params = {"argv": ["cat"], "stdin_open": True, "stream": True, "execution_id": "theirs"}
        request = other.start("execute", {**params, "manifest": {}})
        other.notification("execution/started", execution_id="theirs")
        for method, more in OTHERS.items():  # the control: the owner may do all of this
            if method not in ("execution/cancel", "execution/wait", "execution/close_stdin"):
                other.call(method, {"execution_id": "theirs", **more})
        yield "theirs"
        assert not other.has_answered(request)
        other.call("execution/cancel", {"execution_id": "theirs"})
        assert other.result(request)["outcome"] == "cancelled"


OTHERS = {
    "execution/write": {"data": "attack\n"},
    "execution/close_stdin": {},
    "execution/signal": {"signal": "SIGWINCH"},
    "execution/cancel": {},
    "execution/wait": {},
}


@pytest.mark.parametrize("method", OTHERS)
def test_ids_of_another_connection_do_not_work(box: Box, running: str, method: str) -> None:
    """Write to, signal, cancel or wait for an execution of another connection by its id."""
    with pytest.raises(RpcError) as refusal:
        box.connection.call(method, {"execution_id": running, **OTHERS[method]})
    assert refusal.value.kind == "NotFound"
    assert running not in str(box.connection.call("execution/list"))


def test_id_of_an_ended_execution_signals_nobody(box: Box) -> None:
    """Signal an execution that has ended: its pid may have been reused."""
    ran = box.run("true", execution_id="ended")
    assert ran.exited(0)
    with pytest.raises(RpcError) as refusal:
        box.connection.call("execution/signal", {"execution_id": "ended", "signal": 9})
    assert refusal.value.kind == "NotFound"


CONNECT_AND_LEAVE = """
import os, signal, socket, sys, time
client = socket.socket(socket.AF_UNIX)
client.connect(sys.argv[1])
parent = os.getpid()
if os.fork() == 0:
    while sys.argv[3] == "leave" and os.getppid() == parent:
        time.sleep(0.001)
    os.kill(int(sys.argv[2]), signal.SIGCONT)
    client.sendall(b'{"jsonrpc": "2.0", "id": 1, "method": "status"}\\n')
    print(client.makefile().readline(), flush=True)
    os._exit(0)
if sys.argv[3] == "stay":
    os.wait()
"""


def test_peer_that_left_before_it_was_checked_is_refused(box: Box) -> None:
    """Connect, hand the connection on and end: the pid that the daemon sees may be reused.

    The daemon is held up meanwhile, so that it looks at the peer only afterwards.
    """

    def ask(how: str) -> str:
        os.kill(box.daemon.pid, signal.SIGSTOP)
        try:
            command = [sys.executable, "-I", "-c", CONNECT_AND_LEAVE, box.daemon.socket,
                       str(box.daemon.pid), how]  # fmt: skip
            done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
        finally:
            os.kill(box.daemon.pid, signal.SIGCONT)
        return done.stdout

    assert '"result"' in ask("stay")
    assert "Unauthorized" in ask("leave")


def test_other_sandboxes_processes_are_out_of_reach(box: Box) -> None:
    """Signal, trace and look into a command of another sandbox, by its number outside."""
    attack = python("""
        done = []
        pid = int(args[0])
        for way in (lambda: os.kill(pid, 0), lambda: c("ptrace", 16, pid, 0, 0),
                    lambda: open(f"/proc/{pid}/environ").read(),
                    lambda: os.readlink(f"/proc/{pid}/cwd")):
            try:
                way()
                done.append("done")
            except OSError:
                pass
        worked(*done) if done else blocked("none")
    """)
    marker = f"3{os.getpid()}"
    with box.daemon.connect() as other:
        params = {"argv": ["sleep", marker], "execution_id": "sleeper", "stream": True}
        other.start("execute", {**params, "manifest": {"timeout": "none"}})
        other.notification("execution/started", execution_id="sleeper")
        pid = _find(box, marker)
        assert freely(attack, pid).worked
        subprocess.run(["kill", "-CONT", str(pid)], check=True)
        inside = box.attack(attack, pid)
        other.call("execution/cancel", {"execution_id": "sleeper"})
    assert inside.blocked, inside.words


def _find(box: Box, marker: str) -> int:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        # Not only below the daemon: the processes of a container are the engine's.
        for line in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):
                if line.read_bytes().split(b"\0")[:2] == [b"sleep", marker.encode()]:
                    return int(line.parent.name)
        time.sleep(0.02)
    raise AssertionError("the command does not show on the host")


def test_victim_is_what_it_claims_to_be(victim: Victim) -> None:
    """The suite's own tool: a replaced file is not an untouched one."""
    assert victim.untouched
    replaced = victim.path.with_name("other")
    replaced.write_text(Victim.ORIGINAL)
    replaced.rename(victim.path)
    assert victim.was_hit()
    assert victim.untouched
