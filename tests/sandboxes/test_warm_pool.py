"""Warm sandboxes: as fresh as cold ones, never stale, and ended when they are idle."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from support.daemon import Daemon, stdout_of
from support.processes import survivors
from support.rpc import Connection, RpcError

pytestmark = pytest.mark.requires("bubblewrap")
StartDaemon = Callable[..., Daemon]
PATIENCE_S = 20.0


def warm(connection: Connection) -> int:
    count: int = connection.call("status")["sandboxes"]["warm"]
    return count


def wait_until_warm(connection: Connection, at_least: int = 1) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while warm(connection) < at_least:
        assert time.monotonic() < deadline, "no sandbox became warm"
        time.sleep(0.02)


def run(connection: Connection, script: str, **params: Any) -> Any:
    return connection.call("execute", {"argv": ["/bin/sh", "-c", script], **params})


def test_after_a_command_another_sandbox_waits(daemon: Daemon) -> None:
    with daemon.connect() as connection:
        assert warm(connection) == 0
        run(connection, "true")
        wait_until_warm(connection)


@pytest.mark.isolation
def test_nothing_of_an_earlier_command_is_visible(daemon: Daemon) -> None:
    """The same plan again and again: /tmp, shared memory, processes and sockets start empty."""
    bind = "s = socket.socket(socket.AF_UNIX); s.bind(chr(0) + 'left'); open('/tmp/up', 'w')"
    server = f'/usr/bin/python3 -c "import socket, time; {bind}; time.sleep(600)"'
    wait = "until [ -e /tmp/up ]; do sleep 0.01; done"
    leave = f"touch /tmp/left /dev/shm/left; ({server} & sleep 600 &) ; {wait}; echo $$"
    look = (
        "ls -A /tmp /dev/shm; cat /proc/[0-9]*/comm | grep -c -e sleep -e python; "
        "awk 'NR > 1 && NF > 7' /proc/net/unix"  # those with a name
    )
    manifest = {"network": "deny"}  # the host's sockets come and go
    with daemon.connect() as connection:
        fresh = stdout_of(run(connection, look, manifest=manifest))
        assert "left" not in fresh
        for _ in range(5):
            left = stdout_of(run(connection, f"{leave}; {look}", manifest=manifest))
            assert left.count("left") == 3  # the control
            wait_until_warm(connection)
            assert stdout_of(run(connection, look, manifest=manifest)) == fresh


@pytest.mark.isolation
def test_a_client_sees_nothing_of_another_client(daemon: Daemon) -> None:
    with daemon.connect() as one, daemon.connect() as other:
        stdout_of(run(one, "echo secret > /tmp/secret"))
        wait_until_warm(other)
        assert stdout_of(run(other, "cat /tmp/secret 2>/dev/null || echo nothing")) == "nothing\n"


@pytest.mark.isolation
def test_a_replaced_folder_is_not_served_from_a_warm_sandbox(
    daemon: Daemon, workspace: Path
) -> None:
    """A warm sandbox still has the old folder mounted; the new one must be shown."""
    (workspace / "which").write_text("old")
    manifest = {"fs_read_allow": [str(workspace)]}
    script = f"cat {workspace}/which"
    with daemon.connect() as connection:
        assert stdout_of(run(connection, script, manifest=manifest)) == "old"
        wait_until_warm(connection)
        workspace.rename(workspace.with_name("moved"))
        workspace.mkdir()
        (workspace / "which").write_text("new")
        assert stdout_of(run(connection, script, manifest=manifest)) == "new"


def test_a_warm_sandbox_that_died_is_replaced_unnoticed(daemon: Daemon) -> None:
    with daemon.connect() as connection:
        run(connection, "true")
        wait_until_warm(connection)
        killed = daemon.descendants()
        for process in killed:
            with suppress(ProcessLookupError):
                os.kill(process.pid, 9)
        assert not survivors(killed)
        assert stdout_of(run(connection, "echo fine")) == "fine\n"


@pytest.mark.isolation
def test_a_path_that_vanished_is_refused_and_not_served_warm(
    daemon: Daemon, workspace: Path
) -> None:
    manifest = {"fs_read_allow": [str(workspace)]}
    with daemon.connect() as connection:
        run(connection, "true", manifest=manifest)
        wait_until_warm(connection)
        workspace.rmdir()
        with pytest.raises(RpcError) as refused:
            run(connection, "true", manifest=manifest)
        assert refused.value.kind == "PathDenied"


def test_the_pool_can_be_switched_off(start_daemon: StartDaemon) -> None:
    daemon = start_daemon(config="[pool]\nenabled = false\n")
    with daemon.connect() as connection:
        for _ in range(3):
            assert stdout_of(run(connection, "echo hi")) == "hi\n"
        assert warm(connection) == 0


def test_the_pool_stays_within_its_limit(start_daemon: StartDaemon, tmp_path: Path) -> None:
    daemon = start_daemon(config="[pool]\nmax_sandboxes = 2\n")
    with daemon.connect() as connection:
        for index in range(6):
            folder = tmp_path / str(index)
            folder.mkdir()
            run(connection, "true", manifest={"fs_read_allow": [str(folder)]})
        wait_until_warm(connection, 2)
        for _ in range(20):
            assert warm(connection) <= 2


def test_many_at_once_each_get_a_sandbox_of_their_own(daemon: Daemon) -> None:
    with daemon.connect() as connection:
        script = "echo $$ > /tmp/mine; sleep 0.2; cat /tmp/mine; ls /tmp | wc -l"
        numbers = [connection.start("execute", {"argv": ["sh", "-c", script]}) for _ in range(16)]
        outputs = [stdout_of(connection.result(number)) for number in numbers]
        assert all(output.endswith("\n1\n") for output in outputs)


@pytest.mark.isolation
def test_a_denied_path_that_was_removed_is_not_made_again_by_a_refill(
    daemon: Daemon, workspace: Path
) -> None:
    """bwrap makes a missing mount point, and it stays on the host."""
    token = workspace / "token"
    token.write_text("secret")
    manifest = {"fs_read_allow": [str(workspace)], "fs_deny": [str(token)]}
    with daemon.connect() as connection:
        run(connection, "sleep 0.1", manifest=manifest)
        token.unlink()
        for _ in range(10):
            run(connection, "true", manifest={"fs_read_allow": [str(workspace)]})
            assert not token.exists()
