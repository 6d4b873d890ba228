"""Commands through a daemon, the fake lifecycle server and the stand-in execd."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from support.daemon import Daemon
from support.fake_opensandbox import FakeServer
from support.no_files import check_files_are_refused
from support.rpc import RpcError
from support.runs import Runner

INHERIT = {"network": "inherit"}


def test_output_and_exit_code(runner: Runner) -> None:
    ran = runner.shell("echo out; echo; echo err >&2; exit 3", manifest=INHERIT)
    assert (ran.outcome, ran.exit_code) == ("exited", 3)
    assert (ran.stdout, ran.stderr) == ("out\n\n", "err\n")


def test_success_is_zero_and_the_sandbox_is_gone(runner: Runner, fake: FakeServer) -> None:
    assert runner.run("true", manifest=INHERIT).exited(0)
    assert len(fake.deleted) == 1
    assert not fake.sandboxes


def test_sse_framing_is_understood_too(runner: Runner, fake: FakeServer) -> None:
    fake.sse = True
    ran = runner.shell("echo out; exit 4", manifest=INHERIT)
    assert ran.exited(4), ran.story
    assert ran.stdout == "out\n"


def test_environment_and_folder(runner: Runner) -> None:
    env = [["GIVEN", "a b"], ["PATH", os.environ["PATH"]]]
    ran = runner.shell("pwd; echo $GIVEN", manifest={**INHERIT, "env": env}, cwd="/usr")
    assert ran.stdout == "/usr\na b\n"
    assert ran.enforcement["env"] == "best_effort"


def test_a_program_that_is_not_there(runner: Runner) -> None:
    with pytest.raises(RpcError) as refused:
        runner.run("/nonexistent/program", manifest=INHERIT)
    assert refused.value.kind == "ExecFailed"


def test_much_output(runner: Runner) -> None:
    ran = runner.shell("seq 100000", manifest=INHERIT, capture={"bytes": 1 << 22})
    assert ran.exited(0), ran.story
    assert ran.stdout.splitlines()[-1] == "100000"


def test_timeout_ends_the_command_and_what_it_left(
    runner: Runner, fake: FakeServer, tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    script = f"echo $$ > {pids}; trap '' TERM; while :; do sleep 0.1; done"
    ran = runner.shell(script, manifest={**INHERIT, "timeout": 1})
    assert (ran.outcome, ran.exit_code) == ("timeout", None)
    assert not fake.sandboxes
    _wait_gone(int(pids.read_text()))


def test_cancel(daemon: Daemon, fake: FakeServer) -> None:
    with daemon.connect() as connection:
        params = {"argv": ["sleep", "100"], "manifest": INHERIT, "execution_id": "ex-cancel"}
        call = connection.start("execute", params)
        _until(lambda: bool(_commands(fake)))
        connection.call("execution/cancel", {"execution_id": "ex-cancel"})
        assert connection.result(call)["outcome"] == "cancelled"
    assert not fake.sandboxes


def test_a_signal_that_execd_does_not_name_is_an_error(runner: Runner) -> None:
    with pytest.raises(AssertionError, match="ended by a signal"):
        runner.shell("kill -SEGV $$", manifest=INHERIT)


def test_output_limit(runner: Runner, fake: FakeServer) -> None:
    ran = runner.shell("yes", manifest={**INHERIT, "max_output_bytes": 10000})
    assert ran.outcome == "output_limit"
    assert not fake.sandboxes


@pytest.mark.parametrize(
    ("field", "params"),
    [
        ("stdin", {"stdin": "text"}),
        ("stdin", {"stdin_open": True}),
        ("pty", {"pty": {"rows": 24, "cols": 80}}),
        ("max_processes", {"manifest": {**INHERIT, "max_processes": 10}}),
        ("max_cpu_secs", {"manifest": {**INHERIT, "max_cpu_secs": 10}}),
        ("max_file_bytes", {"manifest": {**INHERIT, "max_file_bytes": 10}}),
        ("base", {"manifest": {**INHERIT, "base": "host"}}),
        ("fs_read_allow", {"manifest": {**INHERIT, "fs_read_allow": ["/usr"]}}),
        (
            "network",
            {"manifest": {"network": {"kind": "allow_hosts", "hosts": ["example.org:22"]}}},
        ),
    ],
)
def test_what_execd_cannot_do_is_refused_by_name(
    runner: Runner, fake: FakeServer, field: str, params: dict[str, object]
) -> None:
    with pytest.raises(RpcError) as refused:
        runner.run("cat", **{"manifest": INHERIT, **params})
    assert refused.value.kind == "PolicyNotSupported", refused.value
    assert refused.value.field == field
    _until(lambda: not fake.sandboxes)


def test_what_the_server_is_asked_for(runner: Runner, fake: FakeServer) -> None:
    hosts = {"kind": "allow_hosts", "hosts": ["example.org", "*.example.com"]}
    limits = {"max_memory_bytes": 64 << 20, "max_cpus": 0.5}
    ran = runner.run("true", manifest={"network": hosts, "image": "other:1", **limits})
    (body,) = fake.created
    assert body["image"] == {"uri": "other:1"}
    assert body["resourceLimits"] == {"memory": str(64 << 20), "cpu": "500m"}
    assert body["networkPolicy"]["defaultAction"] == "deny"
    assert {one["target"] for one in body["networkPolicy"]["egress"]} == {
        "example.org", "*.example.com",
    }  # fmt: skip
    assert ran.enforcement["network"] == "best_effort"
    assert ran.enforcement["max_memory_bytes"] == "enforced"


def test_no_network_is_a_policy_that_allows_nothing(runner: Runner, fake: FakeServer) -> None:
    assert runner.run("true", manifest={"network": "deny"}).exited(0)
    assert fake.created[0]["networkPolicy"] == {"defaultAction": "deny", "egress": []}


def test_a_persistent_sandbox_serves_many_commands(daemon: Daemon, fake: FakeServer) -> None:
    with daemon.connect() as connection:
        made = connection.call("sandbox/create", {"manifest": INHERIT})
        for number in (0, 5):
            argv = ["sh", "-c", f"exit {number}"]
            ran = connection.call("execute", {"argv": argv, "sandbox": made["sandbox"]})
            assert ran["exit_code"] == number
        assert len(fake.created) == 1
        assert len(fake.sandboxes) == 1
        check_files_are_refused(connection, made["sandbox"], "opensandbox")
        connection.call("sandbox/destroy", {"sandbox": made["sandbox"]})
    assert not fake.sandboxes


def test_a_signal_ends_a_command_and_others_are_refused(daemon: Daemon, fake: FakeServer) -> None:
    with daemon.connect() as connection:
        params = {"argv": ["sleep", "100"], "manifest": INHERIT, "execution_id": "ex-signal"}
        call = connection.start("execute", params)
        _until(lambda: bool(_commands(fake)))
        time.sleep(0.2)
        with pytest.raises(RpcError) as refused:
            connection.call("execution/signal", {"execution_id": "ex-signal", "signal": "SIGUSR1"})
        assert refused.value.field == "signal"
        connection.call("execution/signal", {"execution_id": "ex-signal", "signal": "SIGTERM"})
        answer = connection.result(call)
    assert (answer["outcome"], answer["signal"]) == ("signaled", signal.SIGTERM)


def test_status_names_the_server(daemon: Daemon, fake: FakeServer) -> None:
    with daemon.connect() as connection:
        status = connection.call("status")
    (found,) = [one for one in status["backends"] if one["name"] == "opensandbox"]
    assert found["available"], found
    assert "1.1.1-fake" in str(found)
    assert fake.url in str(found)


def _commands(fake: FakeServer) -> list[object]:
    return [one for box in list(fake.sandboxes.values()) for one in box.commands._running]


def _until(met: object) -> None:
    assert callable(met)
    deadline = time.monotonic() + 20
    while not met():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _wait_gone(pid: int) -> None:
    _until(lambda: not os.path.exists(f"/proc/{pid}"))


def test_a_sandbox_that_comes_up_is_told(daemon: Daemon, fake: FakeServer) -> None:
    with daemon.connect() as connection:
        connection.call("sandbox/create", {"manifest": INHERIT, "name": "remote"})
        told = [n["params"] for n in connection.notifications]
        ended = {"phase": "start", "total": 1, "sandbox": "remote"}
        assert told == [{**ended, "done": 0}, {**ended, "done": 1}]
        connection.call("sandbox/destroy", {"sandbox": "remote"})


def test_sandboxctl_in_a_terminal_runs_without_one(daemon: Daemon, tmp_path: Path) -> None:
    """A person at a terminal did not ask for one; with --pty the refusal stays."""

    def shown(*flags: str) -> str:
        master, slave = os.openpty()
        words = [sys.executable, "-m", "sandboxd_client.cli", "run", *flags, "--net", "all", "--"]
        env = {**os.environ, "SANDBOXD_SOCKET": daemon.socket, "PYTHONPATH": ":".join(sys.path)}
        with subprocess.Popen([*words, "echo", "here"], cwd=tmp_path, env=env,
                              stdin=slave, stdout=slave, stderr=slave):  # fmt: skip
            os.close(slave)
            text = b""
            with suppress(OSError):  # EIO: the last one who had it open is gone
                while data := os.read(master, 4096):
                    text += data
        os.close(master)
        return text.decode()

    assert "here" in shown().splitlines()
    assert "have no terminal" in shown("--pty")
