"""Clients and commands that behave badly: a bounded effect, nothing left over, the daemon lives."""

from __future__ import annotations

import os
import resource
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from support.daemon import Daemon
from support.processes import Process, survivors
from support.rpc import Connection, RpcError

pytestmark = pytest.mark.requires("bubblewrap")

FEW_FILES = 160
CAPTURED = 8 * 1024 * 1024
MEMORY_ROOM = 100 * 1024 * 1024
FOREVER = {"argv": ["sleep", "600"], "stream": True, "execution_id": "forever"}


def memory_bytes(daemon: Daemon) -> int:
    """Resident memory of the daemon (statm is readable although it is not dumpable)."""
    pages = int(Path(f"/proc/{daemon.pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def commands(daemon: Daemon) -> list[Process]:
    """What runs for clients: not the sandboxes themselves, of which some wait ready for use."""
    return [p for p in daemon.descendants() if p.name != "bwrap" and "sandboxd" not in p.name]


def running(connection: Connection) -> None:
    """Start a command that does not end by itself, and see it run."""
    connection.start("execute", FOREVER)
    connection.notification("execution/started")


@pytest.fixture
def many_files() -> Iterator[int]:
    """As many descriptors as the hard limit allows, up to what the test wants."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(hard, 4096)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    yield wanted
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_thousands_of_idle_connections_do_not_stop_it(daemon: Daemon, many_files: int) -> None:
    before = daemon.connect()
    before.call("initialize")
    with ExitStack() as idle:
        for _ in range(min(2000, many_files - 200)):
            try:
                idle.enter_context(daemon.connect(timeout_s=5))
            except (ConnectionRefusedError, BlockingIOError, TimeoutError):
                break  # a full backlog is a bounded effect too
        assert before.call("execute", {"argv": ["echo", "here"]})["stdout"]["data"] == "here\n"
        assert memory_bytes(daemon) < 2 * MEMORY_ROOM
    before.close()
    with daemon.connect() as after:
        assert after.call("execute", {"argv": ["true"]})["exit_code"] == 0


def test_a_client_that_stops_reading_slows_only_itself(daemon: Daemon) -> None:
    with daemon.connect() as deaf, daemon.connect() as other:
        before = memory_bytes(daemon)
        deaf.start("execute", {"argv": ["yes"], "stream": True, "execution_id": "flood"})
        for _ in range(10):
            assert other.call("execute", {"argv": ["true"]})["exit_code"] == 0
        assert memory_bytes(daemon) - before < MEMORY_ROOM
        flooding = commands(daemon)
        assert "yes" in {p.name for p in flooding}
        deaf.close()
        assert not survivors(flooding)


def test_a_client_that_vanishes_takes_its_command_along(daemon: Daemon) -> None:
    connection = daemon.connect()
    running(connection)
    its_own = commands(daemon)
    assert "sleep" in {p.name for p in its_own}
    connection.close()
    assert not survivors(its_own)
    with daemon.connect() as after:
        assert after.call("execution/list") == {"executions": []}


def test_a_flood_is_captured_up_to_the_limit_and_counted_to_the_end(daemon: Daemon) -> None:
    flood = 3 * CAPTURED
    with daemon.connect() as connection:
        result = connection.call("execute", {"argv": ["sh", "-c", f"yes | head -c {flood}"]})
        assert (result["outcome"], result["exit_code"]) == ("exited", 0)
        assert result["stdout"]["bytes"] == flood
        assert result["stdout"]["truncated"]
        assert len(result["stdout"]["data"]) == CAPTURED


def test_a_command_that_ignores_sigterm_is_killed_at_its_timeout(daemon: Daemon) -> None:
    script = "trap '' TERM; echo ready; while :; do sleep 1; done"
    with daemon.connect() as connection:
        params = {"argv": ["sh", "-c", script], "manifest": {"timeout": 0.5}}
        result = connection.call("execute", params)
        assert result["outcome"] == "timeout"
        assert result["stdout"]["data"] == "ready\n"
        assert connection.call("execute", {"argv": ["true"]})["exit_code"] == 0


@pytest.mark.isolation
def test_a_fork_bomb_ends_with_its_timeout(daemon: Daemon) -> None:
    # Of a size that the machine survives should the limit not hold.
    leaf = "for j in $(seq 9); do sleep 99 & done; wait"
    bomb = f"for i in $(seq 30); do setsid sh -c '{leaf}' & done; wait"
    manifest = {"timeout": 2, "max_processes": 60}
    with daemon.connect() as connection:
        result = connection.call("execute", {"argv": ["sh", "-c", bomb], "manifest": manifest})
        assert result["outcome"] in ("timeout", "processes", "exited")
        assert not survivors(commands(daemon))
        assert connection.call("execute", {"argv": ["true"]})["exit_code"] == 0


@pytest.mark.isolation
def test_nothing_outlives_a_daemon_that_is_killed(daemon: Daemon) -> None:
    with daemon.connect() as connection:
        running(connection)
        below = daemon.descendants()
        assert "sleep" in {p.name for p in below}
        daemon.process.kill()
        daemon.process.wait()
        assert not survivors(below)


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_daemon_and_every_child(daemon: Daemon, ending: int) -> None:
    with daemon.connect() as connection:
        running(connection)
        assert commands(daemon)
        assert daemon.stop(ending) == 0
        assert not Path(daemon.socket).exists()


def test_results_of_detached_commands_are_kept_up_to_a_size(daemon: Daemon) -> None:
    """Each prints 8 MiB: the newest are there, the oldest make room."""
    script = "head -c 8388608 /dev/zero | tr '\\0' x"
    with daemon.connect() as connection:
        names = [f"kept-{number}" for number in range(12)]
        for name in names:
            params = {"argv": ["sh", "-c", script], "detach": True, "execution_id": name}
            connection.call("execute", params)
            done = connection.call("execution/wait", {"execution_id": name})
            assert done["stdout"]["bytes"] == 8 << 20
        again = connection.call("execution/wait", {"execution_id": names[-1]})
        assert len(again["stdout"]["data"]) == 8 << 20
        with pytest.raises(RpcError, match="no execution"):
            connection.call("execution/wait", {"execution_id": names[0]})


def test_a_client_that_takes_all_descriptors_does_not_end_the_daemon(
    start_daemon: Callable[..., Daemon],
) -> None:
    """Connections, and descriptors in frames that never end: others are served afterwards."""
    daemon = start_daemon(prefix=["prlimit", f"--nofile={FEW_FILES}:{FEW_FILES}"])
    open_files = Path(f"/proc/{daemon.pid}/fd")
    read, write = os.pipe()
    with ExitStack() as greedy:
        for _ in range(FEW_FILES // 16):
            with suppress(OSError):
                client = greedy.enter_context(daemon.connect())
                for _ in range(4):
                    client.send_raw(b"{", fds=[read] * 16)
        if os.access(open_files, os.R_OK):
            until = time.monotonic() + 20
            while len(list(open_files.iterdir())) < FEW_FILES - 8 and time.monotonic() < until:
                time.sleep(0.05)
            assert len(list(open_files.iterdir())) >= FEW_FILES - 8  # the control
        time.sleep(3)  # what the daemon does from time to time fails meanwhile
    os.close(read)
    os.close(write)
    served = None
    while served is None:  # those who left are still being accepted, one by one
        with daemon.connect() as other:
            try:
                served = other.call("execute", {"argv": ["true"]})
            except RpcError as error:
                if error.kind != "Busy":
                    raise
                time.sleep(0.1)
    assert served["exit_code"] == 0


def test_an_environment_that_is_too_long_for_the_init_is_no_internal_error(
    shared_daemon: Daemon,
) -> None:
    env = {f"V{number}": "x" * 100_000 for number in range(95)}
    with shared_daemon.connect() as client, pytest.raises(RpcError) as refused:
        client.call("execute", {"argv": ["true"], "manifest": {"env": env}})
    assert refused.value.kind == "ExecFailed"


def test_a_budget_of_any_length_lets_a_command_without_a_timeout_run(
    shared_daemon: Daemon,
) -> None:
    with shared_daemon.connect() as client:
        client.call("session/open", {"budget": {"max_wall_time_secs": 1e300}})
        result = client.call("execute", {"argv": ["true"], "manifest": {"timeout": "none"}})
    assert result["exit_code"] == 0
