"""Persistent sandboxes: commands share them, background processes survive, reports stay exact."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from support.daemon import Daemon, running_daemon, stdout_of
from support.processes import processes_below
from support.rpc import Connection, RpcError

pytestmark = pytest.mark.requires("bubblewrap")

SERVER = """
import socket, sys
server = socket.create_server(("127.0.0.1", 8123))
print("ready", flush=True)
while True:
    client, _ = server.accept()
    client.sendall(b"pong")
    client.close()
"""
ASK = """
import socket
print(socket.create_connection(("127.0.0.1", 8123), 10).recv(10).decode())
"""


@pytest.fixture(scope="module")
def one_daemon() -> Iterator[Daemon]:
    with running_daemon() as daemon:
        yield daemon


@pytest.fixture
def daemon(one_daemon: Daemon) -> Iterator[Daemon]:
    """The same for all, and without a sandbox before each test."""
    yield one_daemon
    with one_daemon.connect() as connection:
        for left in connection.call("sandbox/list")["sandboxes"]:
            with suppress(RpcError):
                connection.call("sandbox/destroy", {"sandbox": left["sandbox"]})


def create(connection: Connection, **params: Any) -> str:
    sandbox: str = connection.call("sandbox/create", params or {"manifest": {"network": "deny"}})[
        "sandbox"
    ]
    assert sandbox.startswith("sb-")
    return sandbox


def run(connection: Connection, sandbox: str, *argv: str, **params: Any) -> Any:
    return connection.call("execute", {"argv": list(argv), "sandbox": sandbox, **params})


def test_commands_share_tmp(daemon: Daemon) -> None:
    with daemon.connect() as connection:
        sandbox = create(connection)
        stdout_of(run(connection, sandbox, "sh", "-c", "echo one > /tmp/note"))
        assert stdout_of(run(connection, sandbox, "cat", "/tmp/note")) == "one\n"
        assert stdout_of(run(connection, sandbox, "pwd", cwd="/tmp")) == "/tmp\n"


def test_a_server_started_in_one_command_answers_the_next(daemon: Daemon) -> None:
    with daemon.connect() as connection:
        sandbox = create(connection)
        wait = "until grep -q ready /tmp/log; do :; done"
        script = f"/usr/bin/python3 -c '{SERVER}' > /tmp/log & {wait}"
        result = run(connection, sandbox, "sh", "-c", script)
        assert result["outcome"] == "exited"
        assert stdout_of(run(connection, sandbox, "/usr/bin/python3", "-c", ASK)) == "pong\n"


def test_output_of_background_processes_does_not_hold_up_the_result_or_them(daemon: Daemon) -> None:
    """The background process holds the command's stdout and prints more than a pipe takes."""
    script = "(while :; do echo noise; done) & echo done"
    with daemon.connect() as connection:
        sandbox = create(connection)
        result = run(connection, sandbox, "sh", "-c", script)
        assert result["exit_code"] == 0
        assert "done\n" in result["stdout"]["data"]
        counting = "a=$(cat /proc/[0-9]*/stat | awk '{s += $14 + $15} END {print s}'); echo $a"
        first = int(stdout_of(run(connection, sandbox, "sh", "-c", counting)))
        time.sleep(0.5)
        assert int(stdout_of(run(connection, sandbox, "sh", "-c", counting))) > first


def test_commands_run_at_the_same_time_with_exact_reports(daemon: Daemon) -> None:
    with daemon.connect() as connection:
        sandbox = create(connection)
        numbers = [
            connection.start(
                "execute", {"argv": ["sh", "-c", f"sleep 0.1; exit {code}"], "sandbox": sandbox}
            )
            for code in range(20)
        ]
        assert [connection.result(n)["exit_code"] for n in numbers] == list(range(20))
        listed = connection.call("sandbox/list")["sandboxes"]
        assert [entry["sandbox"] for entry in listed] == [sandbox]


@pytest.mark.isolation
def test_cancel_kills_one_commands_tree_and_leaves_the_others(daemon: Daemon) -> None:
    with daemon.connect() as connection:
        sandbox = create(connection)
        stdout_of(run(connection, sandbox, "sh", "-c", "sleep 1001 & echo started"))
        doomed = connection.start(
            "execute",
            {"argv": ["sh", "-c", "sleep 1002 & sleep 1003"], "sandbox": sandbox,
             "execution_id": "doomed"},
        )  # fmt: skip
        seen = "while ! grep -aqs 1003 /proc/[0-9]*/cmdline; do :; done"
        stdout_of(run(connection, sandbox, "sh", "-c", seen))
        connection.call("execution/cancel", {"execution_id": "doomed"})
        assert connection.result(doomed)["outcome"] == "cancelled"
        look = "cat /proc/[0-9]*/cmdline | tr '\\0' '\\n' | grep -x '100[0-9]'"
        assert stdout_of(run(connection, sandbox, "sh", "-c", look)) == "1001\n"


@pytest.mark.isolation
def test_limits_hold_for_each_command(daemon: Daemon) -> None:
    with daemon.connect() as connection:
        sandbox = create(connection, manifest={"timeout": 0.5})
        assert run(connection, sandbox, "sleep", "60")["outcome"] == "timeout"
        assert stdout_of(run(connection, sandbox, "echo", "alive")) == "alive\n"


def test_a_command_whose_sandbox_is_destroyed_was_cancelled(daemon: Daemon) -> None:
    """Nothing went wrong: whoever looks for lost isolation in the audit trail finds none."""
    with daemon.connect() as connection, daemon.connect() as other:
        sandbox = connection.call("sandbox/create", {})["sandbox"]
        script = ["sh", "-c", "echo up; sleep 60"]
        request = connection.start(
            "execute", {"sandbox": sandbox, "argv": script, "stream": True, "execution_id": "run"}
        )
        connection.wait_until(lambda: "up" in connection.output("run"))
        other.call("sandbox/destroy", {"sandbox": sandbox})
        result = connection.result(request)
        assert (result["outcome"], result["denials"]) == ("cancelled", []), result


@pytest.mark.isolation
def test_destroy_ends_everything_in_it(daemon: Daemon) -> None:
    with daemon.connect() as connection:
        sandbox = create(connection)
        stdout_of(run(connection, sandbox, "sh", "-c", "sleep 600 & sleep 600 & echo up"))
        connection.call("sandbox/destroy", {"sandbox": sandbox})
        assert connection.call("sandbox/list") == {"sandboxes": []}
        with pytest.raises(RpcError) as gone:
            run(connection, sandbox, "true")
        assert gone.value.kind == "NotFound"
        left = [p for p in processes_below(daemon.pid) if "sleep" in str(p)]
        assert not left


def test_an_idle_sandbox_ends_by_itself(daemon: Daemon) -> None:
    with daemon.connect() as connection:
        create(connection, manifest={}, idle_secs=0.2)
        deadline = time.monotonic() + 20
        while connection.call("sandbox/list")["sandboxes"]:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_it_outlives_the_connection_and_serves_the_users_others(daemon: Daemon) -> None:
    with daemon.connect() as connection:
        sandbox = create(connection)
    with daemon.connect() as other:
        assert stdout_of(run(other, sandbox, "echo", "still")) == "still\n"


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({"manifest": {"network": "deny"}}, "manifest.network"),
        ({"preset": "read-only"}, "preset"),
        ({"workspace": "/tmp"}, "workspace"),
    ],
)
def test_a_command_in_a_sandbox_brings_no_policy(
    daemon: Daemon, params: dict[str, Any], field: str
) -> None:
    with daemon.connect() as connection:
        sandbox = create(connection)
        with pytest.raises(RpcError) as refused:
            run(connection, sandbox, "true", **params)
        assert (refused.value.code, refused.value.field) == (-32602, field)


def test_a_bad_idle_time_is_refused(daemon: Daemon) -> None:
    with daemon.connect() as connection, pytest.raises(RpcError) as refused:
        connection.call("sandbox/create", {"idle_secs": -1})
    assert (refused.value.code, refused.value.field) == (-32602, "idle_secs")


@pytest.mark.isolation
def test_a_protected_path_made_in_it_ends_it(daemon: Daemon, workspace: Path) -> None:
    with daemon.connect() as connection:
        sandbox = create(connection, preset="workspace-write", workspace=str(workspace))
        made = run(connection, sandbox, "sh", "-c", "echo 'gitdir: evil' > .git; sleep 30")
        assert ("protected_path", str(workspace / ".git")) in {
            (denial["kind"], denial["target"]) for denial in made["denials"]
        }
        deadline = time.monotonic() + 20
        while (workspace / ".git").exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert connection.call("sandbox/list") == {"sandboxes": []}
        assert connection.call("sandbox/get", {"sandbox": sandbox})["state"] == "lost"


def test_one_whose_init_died_is_lost_and_its_name_is_free(daemon: Daemon) -> None:
    """The control: one that was destroyed is not there any more."""
    with daemon.connect() as connection:
        sandbox = create(connection, name="fragile")
        assert connection.call("sandbox/get", {"sandbox": "fragile"})["state"] == "up"
        run(connection, sandbox, "true")
        killed = {one.pid for one in processes_below(daemon.pid)}
        for pid in killed:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + 20
        while (got := connection.call("sandbox/get", {"sandbox": "fragile"}))["state"] == "up":
            assert time.monotonic() < deadline
        # One that waited is dying, too, and would be the next sandbox.
        while killed & {one.pid for one in processes_below(daemon.pid)}:
            assert time.monotonic() < deadline
        assert (got["sandbox"], got["state"], got["forwards"]) == (sandbox, "lost", [])
        with pytest.raises(RpcError) as refused:
            run(connection, sandbox, "true")
        assert refused.value.kind == "NotFound"
        again = create(connection, name="fragile")
        got = connection.call("sandbox/get", {"sandbox": "fragile"})
        assert (got["sandbox"], got["state"]) == (again, "up")
        connection.call("sandbox/destroy", {"sandbox": "fragile"})
        with pytest.raises(RpcError) as gone:
            connection.call("sandbox/get", {"sandbox": "fragile"})
        assert gone.value.kind == "NotFound"


def refusal_of(connection: Connection, name: str) -> str:
    """After it has ended."""
    deadline = time.monotonic() + 20
    while connection.call("sandbox/list") != {"sandboxes": []}:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    with pytest.raises(RpcError) as refused:
        run(connection, name, "true")
    assert refused.value.kind == "NotFound"
    return refused.value.message


@pytest.mark.isolation
def test_a_name_says_why_its_sandbox_ended(daemon: Daemon, workspace: Path) -> None:
    """Until another sandbox has the name."""
    with daemon.connect() as connection:
        create(connection, name="idle", idle_secs=0.01)
        assert "'idle' any more: nothing ran in it for 10ms" in refusal_of(connection, "idle")
        again = create(connection, name="idle")
        connection.call("sandbox/destroy", {"sandbox": again})
        assert "any more" not in refusal_of(connection, "idle")
        subprocess.run(["git", "init", "-q", str(workspace)], check=True)
        create(connection, name="lost", preset="workspace-write", workspace=str(workspace))
        subprocess.run(["git", "-C", str(workspace), "config", "a.b", "c"], check=True)
        why = f"'lost' any more: {workspace}/.git/config was replaced, or something was mounted"
        assert why in refusal_of(connection, "lost")


@pytest.mark.isolation
def test_the_name_of_a_sandbox_that_a_hook_ended_says_where_that_is(
    daemon: Daemon, workspace: Path
) -> None:
    with daemon.connect() as connection:
        create(connection, name="hooked", preset="workspace-write", workspace=str(workspace))
        subprocess.run(["git", "init", "-q", str(workspace)], check=True)
        (workspace / ".git/hooks").mkdir(exist_ok=True)
        with suppress(FileNotFoundError):
            (workspace / ".git/hooks/pre-push").write_text("#!/bin/sh\n")
        said = refusal_of(connection, "hooked")
        assert f"any more: {workspace}/.git/hooks" in said
        assert "moved to .sandboxd-kept" in said


@pytest.mark.parametrize("persistent", [True, False])
def test_what_is_moved_aside_is_told_while_the_command_runs(
    daemon: Daemon, tmp_path: Path, *, persistent: bool
) -> None:
    """Once, and with the result. A folder stays until the end, and is no other one then."""
    policy = {"preset": "workspace-write", "workspace": str(tmp_path.resolve())}
    script = "echo x > .envrc; mkdir .vscode; echo x > .vscode/tasks.json; read line"
    with daemon.connect() as connection:
        where = {"sandbox": create(connection, **policy)} if persistent else policy
        number = connection.start("execute", {
            "argv": ["sh", "-c", script], "stdin_open": True, "stream": True,
            "execution_id": "live", **where,
        })  # fmt: skip
        paths = {f"{tmp_path.resolve()}/{name}" for name in (".envrc", ".vscode")}

        def told() -> list[str]:
            said = [n for n in connection.notifications if n["method"] == "execution/denial"]
            return [n["params"]["denial"]["target"] for n in said]

        connection.wait_until(lambda: paths <= set(told()))
        connection.call("execution/close_stdin", {"execution_id": "live"})
        result = connection.result(number)
        assert paths <= {denial["target"] for denial in result["denials"]}
        assert sorted(told()) == sorted(paths)


def test_of_several_commands_none_is_told_what_one_of_them_made(
    daemon: Daemon, tmp_path: Path
) -> None:
    """Both see one workspace, and nothing tells which of them made it."""
    policy = {"preset": "workspace-write", "workspace": str(tmp_path.resolve())}
    with daemon.connect() as connection:
        sandbox = create(connection, **policy)
        waiting = {"sandbox": sandbox, "stdin_open": True, "stream": True, "execution_id": "other"}
        number = connection.start("execute", {"argv": ["cat"], **waiting})
        connection.notification("execution/started", execution_id="other")
        made = run(connection, sandbox, "sh", "-c", "echo x > .envrc")
        connection.call("execution/close_stdin", {"execution_id": "other"})
        connection.result(number)
        assert [denial["kind"] for denial in made["denials"]] == ["protected_path"]
        assert "execution/denial" not in [n["method"] for n in connection.notifications]
