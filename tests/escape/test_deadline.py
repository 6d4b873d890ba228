"""The wall-clock limit while the daemon does nothing: stopped, or too busy to look."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest
from support.attacks import Box, python, weakest
from support.backends import running_backend
from support.runs import Ran

pytestmark = pytest.mark.isolation

# Deaf to every signal that can be ignored, with a child that left the session; both hold the lock.
STAY = python("""
    import fcntl, signal
    for number in range(1, 65):
        try:
            signal.signal(number, signal.SIG_IGN)
        except (OSError, ValueError):
            pass
    lock = open(args[0], "w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    if os.fork() == 0:
        os.setsid()
    time.sleep(60)
    worked()
""")
PATIENCE_S = 20.0


@pytest.fixture(params=["bubblewrap", "landlock"])
def box(request: pytest.FixtureRequest) -> Iterator[Box]:
    with running_backend(request.param) as daemon:
        box = Box(request.param, daemon)
        yield box
        os.kill(daemon.pid, signal.SIGCONT)
        box.close()


def held(path: Path) -> bool:
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def becomes(path: Path, state: bool) -> bool:
    until = time.monotonic() + PATIENCE_S
    while held(path) != state and time.monotonic() < until:
        time.sleep(0.05)
    return held(path) == state


@pytest.mark.parametrize("persistent", [False, True])
def test_a_stopped_daemon_does_not_give_more_time(
    box: Box, workspace: Path, persistent: bool
) -> None:
    """The control is the daemon that is stopped: it cannot have ended the command itself."""
    lock = workspace / "lock"
    lock.touch()
    lock.chmod(0o666)
    params = {"manifest": weakest(workspace, timeout=1)}
    if persistent:
        made = box.connection.call("sandbox/create", params)
        params = {"sandbox": made["sandbox"]}
    found: list[Ran] = []
    running = Thread(target=lambda: found.append(box.run(*STAY, str(lock), **params)))
    running.start()
    assert becomes(lock, True)
    os.kill(box.daemon.pid, signal.SIGSTOP)
    assert becomes(lock, False), "the command lives on without its daemon"
    os.kill(box.daemon.pid, signal.SIGCONT)
    running.join(PATIENCE_S)
    assert found[0].outcome == "timeout", found[0].story


# A silent child counts; its parent is refused more paths than the channel takes.
FLOOD = python("""
    count = os.open(args[0], os.O_WRONLY)
    if os.fork() == 0:
        for number in range(10_000_000):
            os.pwrite(count, b"%d" % number, 0)
    folder = "/proc/none/" + "/".join(["x" * 200] * 15)
    for number in range(1_000_000):
        try:
            os.open(f"{folder}/{number}", os.O_RDONLY)
        except OSError:
            pass
    worked()
""")


def stands_still(path: Path) -> bool:
    """For half a second; the counter runs in microseconds."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        before = path.read_bytes()
        time.sleep(0.5)
        if path.read_bytes() == before:
            return True
    return False


def test_paths_that_the_daemon_does_not_read_of_give_no_more_time(
    box: Box, workspace: Path
) -> None:
    """`explain` sends each refused path. The reaper must not wait for the daemon to take them."""
    count = workspace / "count"
    count.touch()
    count.chmod(0o666)
    params = {"manifest": weakest(workspace, timeout=2), "explain": True}
    found: list[Ran] = []
    running = Thread(target=lambda: found.append(box.run(*FLOOD, str(count), **params)))
    running.start()
    while not count.read_bytes():
        time.sleep(0.05)
    os.kill(box.daemon.pid, signal.SIGSTOP)
    assert stands_still(count), "the command runs on without its daemon"
    os.kill(box.daemon.pid, signal.SIGCONT)
    running.join(PATIENCE_S)
    assert found[0].outcome == "timeout", found[0].story


def test_a_command_whose_exec_waits_ends_by_its_timeout(box: Box, workspace: Path) -> None:
    """The kernel lets an exec wait for the holder of a lease: then the init waits for its child."""
    program = workspace / "program"
    shutil.copy("/bin/true", program)
    before = signal.signal(signal.SIGIO, signal.SIG_IGN)
    try:
        with program.open("r+b") as file:
            fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
            ran = box.run(str(program), manifest=weakest(workspace, timeout=1))
    finally:
        signal.signal(signal.SIGIO, before)
    assert ran.outcome == "timeout", ran.story
    assert box.run(str(program), manifest=weakest(workspace)).exited(0)
