"""Processes that try to outlive their command, its timeout or the daemon.

Each holds a lock on a file in the workspace: as long as the lock is held, a process is alive.
"""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from support.attacks import Box, python, weakest
from support.backends import running_backend
from support.processes import processes_below, survivors

pytestmark = pytest.mark.isolation

# What a survivor does: take the lock, say so, and stay, whatever it is told.
STAY = """
    import fcntl, signal
    def stay(seconds=60):
        for number in range(1, 65):
            try:
                signal.signal(number, signal.SIG_IGN)
            except (OSError, ValueError):
                pass
        lock = open(args[0], "w")
        fcntl.flock(lock, fcntl.LOCK_EX)
        os.write(ready, b"x")
        os.close(ready)
        null = os.open("/dev/null", os.O_RDWR)
        for number in range(3):
            os.dup2(null, number)
        time.sleep(seconds)
        os._exit(0)
    wait, ready = os.pipe()
    def leave():
        os.close(ready)
        worked() if os.read(wait, 1) else blocked("no survivor")
"""
DOUBLE_FORK = python(
    STAY,
    """
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            c("prctl", 1, 0, 0, 0, 0)  # no PR_SET_PDEATHSIG
            stay()
        os._exit(0)
    leave()
""",
)
# The same, and the command stays too.
DOUBLE_FORK_AND_STAY = python(
    STAY,
    """
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            stay()
        os._exit(0)
    time.sleep(60)
""",
)


class Lock:
    """A process is alive as long as it is held."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()

    def __str__(self) -> str:
        return str(self.path)

    @property
    def held(self) -> bool:
        with self.path.open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    def taken(self) -> bool:
        return self._becomes(held=True)

    def freed(self, within_s: float = 30) -> bool:
        return self._becomes(held=False, within_s=within_s)

    def _becomes(self, *, held: bool, within_s: float = 30) -> bool:
        deadline = time.monotonic() + within_s
        while self.held != held and time.monotonic() < deadline:
            time.sleep(0.02)
        return self.held == held


@pytest.fixture
def lock(workspace: Path) -> Lock:
    return Lock(workspace / "lock")


def control_survives(attack: tuple[str, ...], lock: Lock) -> None:
    """Without a sandbox it does survive; it is ended by whoever opened the lock's file."""
    with subprocess.Popen([*attack, str(lock)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          start_new_session=True) as command:  # fmt: skip
        assert command.wait(30) == 42
    assert lock.held
    for pid in _users_of(lock.path):
        os.kill(pid, signal.SIGKILL)
    assert lock.freed()


def _users_of(path: Path) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if any(link.readlink() == path for link in (entry / "fd").iterdir()):
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def test_double_fork_does_not_outlive_the_command(box: Box, workspace: Path, lock: Lock) -> None:
    """The orphan of a double fork in a session of its own, ignoring every signal."""
    control_survives(DOUBLE_FORK, lock)
    assert box.attack(DOUBLE_FORK, lock, manifest=weakest(workspace)).worked
    assert not lock.held


def test_subreaper_in_between_does_not_outlive_the_command(
    box: Box, workspace: Path, lock: Lock
) -> None:
    """A daemon that adopts its own orphans (PR_SET_CHILD_SUBREAPER), so that no one else does."""
    attack = python(
        STAY,
        """
        if os.fork() == 0:
            c("prctl", 36, 1, 0, 0, 0)
            os.setsid()
            kept = open(args[0])  # so that the control finds this one, too
            if os.fork() == 0:
                if os.fork() == 0:
                    stay()
                os._exit(0)
            time.sleep(60)
        leave()
    """,
    )
    control_survives(attack, lock)
    assert box.attack(attack, lock, manifest=weakest(workspace)).worked
    assert not lock.held


def test_thread_that_stays_does_not_outlive_the_command(
    box: Box, workspace: Path, lock: Lock
) -> None:
    """A grandchild made by a thread, which PR_SET_PDEATHSIG would be bound to."""
    attack = python(
        STAY,
        """
        import threading
        def grandchild():
            if os.fork() == 0:
                os.setsid()
                stay()
        thread = threading.Thread(target=grandchild)
        thread.start()
        thread.join()
        leave()
    """,
    )
    control_survives(attack, lock)
    assert box.attack(attack, lock, manifest=weakest(workspace)).worked
    assert not lock.held


def test_fork_chain_does_not_outrun_the_kill(box: Box, workspace: Path, lock: Lock) -> None:
    """A chain in which each process forks the next and ends: a list of pids is always too old."""
    attack = python(
        STAY,
        """
        lock = open(args[0], "w")
        fcntl.flock(lock, fcntl.LOCK_EX)  # shared by every fork
        if os.fork() == 0:
            os.setsid()
            os.write(ready, b"x")
            until = time.monotonic() + 60
            while time.monotonic() < until:
                if os.fork():
                    os._exit(0)
            os._exit(0)
        leave()
    """,
    )
    assert box.attack(attack, lock, manifest=weakest(workspace)).worked
    assert not lock.held


def test_survivor_does_not_outlive_a_timeout(box: Box, workspace: Path, lock: Lock) -> None:
    """SIGTERM ignored by a whole tree."""
    attack = python(
        STAY,
        """
        if os.fork() == 0:
            os.setsid()
            stay()
        if os.fork() == 0:
            time.sleep(60)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(60)
    """,
    )
    ran = box.run(*attack, str(lock), manifest=weakest(workspace, timeout=0.5))
    assert ran.outcome == "timeout"
    assert not lock.held


def test_stopping_the_keeper_does_not_stop_the_timeout(
    box: Box, workspace: Path, lock: Lock
) -> None:
    """SIGSTOP to the parent, which is what a supervisor in the same session would be."""
    attack = python(
        STAY,
        """
        try:
            os.kill(os.getppid(), signal.SIGSTOP)
        except OSError:
            pass
        stay()
    """,
    )
    control = subprocess.Popen(["timeout", "60", *attack, str(lock)], stdin=subprocess.DEVNULL)
    try:
        assert os.waitid(os.P_PID, control.pid, os.WSTOPPED | os.WNOWAIT) is not None
        assert lock.taken()
        control.send_signal(signal.SIGALRM)  # what its own timer sends after the 60 seconds
        assert not lock.freed(within_s=0.3)
    finally:
        below = processes_below(control.pid)
        control.kill()
        control.wait()
        for process in below:
            os.kill(process.pid, signal.SIGKILL)
    assert lock.freed()
    ran = box.run(*attack, str(lock), manifest=weakest(workspace, timeout=0.5))
    assert ran.outcome == "timeout"
    assert not lock.held


def test_killing_the_keeper_does_not_free_the_command(
    box: Box, workspace: Path, lock: Lock
) -> None:
    """SIGKILL to the parent: who watches over the command then?"""
    attack = python(
        STAY,
        """
        try:
            os.kill(os.getppid(), signal.SIGKILL)
        except OSError:
            pass
        stay()
    """,
    )
    ran = box.run(*attack, str(lock), manifest=weakest(workspace, timeout=0.5))
    assert ran.outcome in ("timeout", "isolation_lost", "signaled")
    assert not lock.held


def test_nothing_outlives_a_killed_daemon(linux_backend: Box, workspace: Path, lock: Lock) -> None:
    """SIGKILL to the daemon: no daemon is left to end its commands."""
    with running_backend(linux_backend.backend) as daemon, daemon.connect() as connection:
        argv = [*DOUBLE_FORK_AND_STAY, str(lock)]
        connection.start("execute", {"argv": argv, "manifest": weakest(workspace, timeout=60)})
        assert lock.taken()
        below = daemon.descendants()
        os.kill(daemon.pid, signal.SIGKILL)
        daemon.process.wait()
        assert not survivors(below)
        assert lock.freed()


def test_nothing_outlives_its_connection(box: Box, workspace: Path, lock: Lock) -> None:
    """A client that vanishes leaves nothing running."""
    attack = python(STAY, "stay()")
    params = {"argv": [*attack, str(lock)], "manifest": weakest(workspace)}
    box.connection.start("execute", params)
    assert lock.taken()
    box.close()
    assert lock.freed()
