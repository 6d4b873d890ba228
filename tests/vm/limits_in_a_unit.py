"""Limits against a daemon in a systemd unit. Run by `inside`, in the virtual machine only.

SANDBOXD_SOCKET is where it listens, SANDBOXD_VM_TIER how firmly it must say that limits are held.
Either way each hog is stopped, with the right outcome: only the guarantee differs.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.rpc import Connection

SOCKET = os.environ["SANDBOXD_SOCKET"]
TIER = os.environ["SANDBOXD_VM_TIER"]
MIB = 1 << 20
PATIENCE_S = 300.0
FOLDER = Path("/sys/fs/cgroup")

SPLIT_MEMORY = """
import os, sys, time
for _ in range(8):
    if os.fork() == 0:
        block = bytearray({bytes})
        block[::4096] = b"x" * len(block[::4096])
        time.sleep({seconds})
        os._exit(0)
for _ in range(8):
    os.wait()
print("done")
"""
SPLIT_CPU = """
import os
for _ in range(3):
    if os.fork() == 0:
        while True: pass
while True: pass
"""
FORK_BOMB = "f() { f | f & f; }; f"


@pytest.fixture(params=["bubblewrap", "landlock"])
def backend(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def connection() -> Iterator[Connection]:
    with Connection(SOCKET, timeout_s=PATIENCE_S) as connection:
        yield connection


def run(connection: Connection, backend: str, *argv: str, **manifest: Any) -> dict[str, Any]:
    params = {"argv": argv, "backend": backend, "manifest": {"timeout": 200, **manifest}}
    result: dict[str, Any] = connection.call("execute", params)
    assert result["backend"] == backend
    return result


def processes_tier(backend: str) -> str:
    """Of a user's daemon: in bubblewrap's user namespace the kernel counts without a cgroup."""
    return "enforced" if backend == "bubblewrap" else TIER


def python(text: str, **values: object) -> tuple[str, str, str]:
    return ("/usr/bin/python3", "-c", text.format(**values) if values else text)


def test_memory_of_the_whole_tree_is_limited(connection: Connection, backend: str) -> None:
    hog = python(SPLIT_MEMORY, bytes=32 * MIB, seconds=30)
    result = run(connection, backend, *hog, max_memory_bytes=96 * MIB)
    assert result["outcome"] == "memory", result
    assert result["enforcement"]["max_memory_bytes"] == TIER
    assert [denial["kind"] for denial in result["denials"]] == ["memory"]


def test_a_tree_below_its_limit_is_left_alone(connection: Connection, backend: str) -> None:
    tame = python(SPLIT_MEMORY, bytes=4 * MIB, seconds=0)
    limits = {"max_memory_bytes": 256 * MIB, "max_processes": 30, "max_cpu_secs": 120}
    result = run(connection, backend, *tame, **limits)
    assert (result["outcome"], result["stdout"]["data"]) == ("exited", "done\n"), result
    assert result["enforcement"]["max_processes"] == processes_tier(backend)
    del limits["max_processes"]
    assert {result["enforcement"][name] for name in limits} == {TIER}


def test_a_fork_bomb_is_stopped(connection: Connection, backend: str) -> None:
    result = run(connection, backend, "bash", "-c", FORK_BOMB, max_processes=20)
    assert result["outcome"] == "processes", result
    tier = processes_tier(backend)
    assert result["enforcement"] == {"timeout": "enforced", "max_processes": tier}


def test_cpu_time_of_the_whole_tree_is_limited(connection: Connection, backend: str) -> None:
    result = run(connection, backend, *python(SPLIT_CPU), max_cpu_secs=2)
    assert result["outcome"] == "cpu", result
    assert result["enforcement"]["max_cpu_secs"] == TIER


def test_a_command_does_not_leave_its_cgroup(connection: Connection, backend: str) -> None:
    """Writing to cgroup.procs of the daemon's own subtree, which belongs to the same user."""
    home = daemon_folder(connection)
    attack = f"echo $$ > {home}/cgroup.procs && echo moved"
    result = run(connection, backend, "sh", "-c", attack, base="host", max_processes=20)
    assert "moved" not in result["stdout"]["data"]
    assert result["exit_code"] != 0


def test_status_says_how_limits_are_held(connection: Connection) -> None:
    found = {b["name"]: b["layers"] for b in connection.call("status", {})["backends"]}
    for name in ("bubblewrap", "landlock"):
        assert ("limits by cgroup v2" in found[name]) == (TIER == "enforced"), found


def test_no_cgroup_of_a_command_is_left(connection: Connection, backend: str) -> None:
    """The next command tidies up after those whose processes took a moment to go."""
    script = "setsid sleep 300 & echo started"
    assert run(connection, backend, "sh", "-c", script, max_processes=20)["exit_code"] == 0
    home = daemon_folder(connection)
    deadline = time.monotonic() + PATIENCE_S
    while (left := [p.name for p in home.glob("command-*")]) and time.monotonic() < deadline:
        run(connection, backend, "true", max_processes=20)
        time.sleep(0.1)
    assert not left


def daemon_folder(connection: Connection) -> Path:
    pid = connection.call("status", {})["pid"]
    (line,) = [
        line
        for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines()
        if line.startswith("0::")
    ]
    own = FOLDER / line.removeprefix("0::/")
    return own.parent if TIER == "enforced" else own
