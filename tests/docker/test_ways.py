"""Two ways to run: what each brings, and how one is chosen."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.attacks import python, verdict
from support.daemon import Daemon, running_daemon
from support.engine import TestEngine
from support.no_files import check_files_are_refused
from support.rpc import Connection, RpcError
from support.runs import Runner

from sandboxd.backends.docker.containers import LABEL
from sandboxd.backends.owner_identity import supervisor_identity

Eventually = Callable[[Callable[[], bool]], bool]
SLOWLY_READ = 1_300_000  # more than what fits on the way from the engine to the reader
PERSISTENT = {"manifest": {"network": "deny"}}


def wait_for_start(connection: Connection) -> None:
    connection.wait_until(
        lambda: any(n["method"] == "execution/started" for n in connection.notifications)
    )


def test_a_local_engine_gets_our_init_by_itself(engine: TestEngine) -> None:
    env = {"SANDBOXD_BACKEND": "docker", "DOCKER_HOST": engine.url}
    with running_daemon(env=env) as daemon, daemon.connect() as connection:
        status = connection.call("status")
        assert status["backend"] == "docker"
        (found,) = [one for one in status["backends"] if one["name"] == "docker"]
        assert found["available"]
        assert "our init inside" in found["layers"]


def test_status_says_what_an_attached_engine_lacks(relayed: Runner) -> None:
    status = relayed.connection.call("status")
    (found,) = [one for one in status["backends"] if one["name"] == "docker"]
    assert "our init inside, over the engine's attach API" in found["layers"]
    assert any("persistent" in warning for warning in status["warnings"])


def test_without_bwrap_everything_is_there(engine: TestEngine, workspace: Path) -> None:
    """A user with Docker and nothing else."""
    env = {"SANDBOXD_BACKEND": "docker", "DOCKER_HOST": engine.url, "PATH": "/nonexistent"}
    with running_daemon(env=env) as daemon:
        runner = Runner(daemon)
        status = runner.connection.call("status")
        assert not status["bwrap_available"]
        assert status["backend"] == "docker"
        preset = {"preset": "workspace-write", "workspace": str(workspace)}
        path = {"manifest": {"env": {"PATH": "/usr/bin:/bin"}}}
        ran = runner.shell("id -u > f; ls /home /root /run; git --version", **preset, **path)
        assert ran.exited(0), ran.raw
        assert (workspace / "f").exists()
        runner.close()


def test_slow_reader_gets_the_whole_output(relayed: Runner) -> None:
    """The engine still has some of it when the container has ended."""
    read, write = os.pipe()
    params = {"argv": ["head", "-c", str(SLOWLY_READ), "/dev/zero"], "fds": {"stdout": 0}}
    request = relayed.connection.start("execute", params, fds=[write])
    os.close(write)
    time.sleep(4)
    with os.fdopen(read, "rb") as file:
        assert len(file.read()) == SLOWLY_READ
    assert relayed.connection.result(request)["outcome"] == "exited"


def test_signal_and_exit_code_are_told_apart(either: Runner) -> None:
    ran = either.shell("kill -SEGV $$")
    assert (ran.outcome, ran.signal) == ("signaled", 11)
    assert either.shell("exit 139").exited(139)


def test_signal_reaches_the_command(either: Runner) -> None:
    with either.daemon.connect() as connection:
        request = connection.start(
            "execute", {"argv": ["sleep", "60"], "execution_id": "e", "stream": True}
        )
        wait_for_start(connection)
        connection.call("execution/signal", {"execution_id": "e", "signal": "TERM"})
        result = connection.result(request)
    assert (result["outcome"], result["signal"]) == ("signaled", 15)


def test_streams_keep_their_tags_and_lose_nothing(either: Runner) -> None:
    script = "for i in $(seq 2000); do echo out$i; echo err$i >&2; done"
    ran = either.shell(script)
    assert ran.stdout.split() == [f"out{number}" for number in range(1, 2001)]
    assert ran.stderr.split() == [f"err{number}" for number in range(1, 2001)]


def test_terminal_has_the_size_that_was_asked_for(either: Runner) -> None:
    ran = either.shell("stty size; tty", pty={"rows": 33, "cols": 99})
    assert ran.stdout == "33 99\r\n/dev/pts/0\r\n"


def test_terminal_takes_input_and_follows_a_resize(either: Runner) -> None:
    with either.daemon.connect() as connection:
        params = {
            "argv": ["sh", "-c", "read a; while ! stty size | grep '^40 120'; do sleep 0.1; done"],
            "pty": {"rows": 24, "cols": 80}, "execution_id": "t", "stream": True, "capture": True,
        }  # fmt: skip
        request = connection.start("execute", params)
        wait_for_start(connection)
        connection.call("execution/resize", {"execution_id": "t", "rows": 40, "cols": 120})
        connection.call("execution/write", {"execution_id": "t", "data": "go\n"})
        result = connection.result(request)
    assert (result["outcome"], result["exit_code"]) == ("exited", 0)
    assert "40 120" in result["stdout"]["data"]


def test_warm_containers_wait_and_serve_one_command_each(
    engine: TestEngine, eventually: Eventually
) -> None:
    env = {"SANDBOXD_BACKEND": "docker", "DOCKER_HOST": engine.url}
    with running_daemon(env=env) as daemon:
        runner = Runner(daemon)
        label = f"label={LABEL}={supervisor_identity(daemon.socket)}"
        hosts = []
        for _ in range(3):
            hosts.append(runner.run("cat", "/proc/sys/kernel/hostname").stdout)
            assert eventually(lambda: runner.connection.call("status")["sandboxes"]["warm"] > 0)
        assert len(set(hosts)) == 3, "a container served twice"
        running = engine.docker("ps", "--quiet", "--filter", label).stdout.split()
        assert running, "nothing waits"
        runner.close()
        daemon.stop()
        left = engine.docker("ps", "--all", "--quiet", "--filter", label).stdout.split()
        assert left == []


def test_warm_container_of_a_replaced_folder_is_not_used(
    box: Runner, workspace: Path, eventually: Eventually
) -> None:
    manifest = {"fs_read_allow": [str(workspace)]}
    (workspace / "f").write_text("old")
    assert box.run("cat", f"{workspace}/f", manifest=manifest).stdout == "old"
    assert eventually(lambda: box.connection.call("status")["sandboxes"]["warm"] > 0)
    workspace.rename(workspace.parent / "moved")
    workspace.mkdir()
    (workspace / "f").write_text("new")
    assert box.run("cat", f"{workspace}/f", manifest=manifest).stdout == "new"


def test_persistent_sandbox_keeps_files_processes_and_localhost(box: Runner) -> None:
    sandbox = box.connection.call("sandbox/create", PERSISTENT)["sandbox"]
    serve = "cd /tmp; echo served > page; python3 -m http.server -b 127.0.0.1 8000"
    serve += " >/dev/null 2>&1 &"
    env = {"sandbox": sandbox}
    assert box.shell(serve, **env).exited(0)
    fetch = "for i in $(seq 100); do wget -qO- http://127.0.0.1:8000/page && break; sleep 0.1; done"
    assert box.shell(fetch, **env).stdout == "served\n"
    assert box.shell("cat /tmp/page", **env).stdout == "served\n"
    box.connection.call("sandbox/destroy", {"sandbox": sandbox})
    with pytest.raises(RpcError) as gone:
        box.shell("true", **env)
    assert gone.value.kind == "NotFound"


def test_attached_engine_refuses_a_sandbox_that_lasts(relayed: Runner) -> None:
    sandbox = relayed.connection.call("sandbox/create", PERSISTENT)["sandbox"]
    check_files_are_refused(relayed.connection, sandbox, "docker")
    with pytest.raises(RpcError) as refused:
        relayed.shell("true", sandbox=sandbox)
    assert refused.value.kind == "PolicyNotSupported"


def test_attached_engine_refuses_what_it_cannot_hold(relayed: Runner) -> None:
    with pytest.raises(RpcError) as refused:
        relayed.run("true", manifest={"base": "host"})
    assert (refused.value.kind, refused.value.field) == ("PolicyNotSupported", "base")


# A call that no engine's profile refuses; without a terminal the kernel says ENOTTY.
TYPE_AHEAD = python("""
    TIOCSTI = 0x5412
    c("ioctl", os.open("/dev/null", os.O_RDWR), TIOCSTI, b"x")
""")


def test_filter_is_loaded_either_way(either: Runner, engine: TestEngine) -> None:
    """Ours is added to the engine's profile, under every policy, and decides by the policy."""
    assert "ENOTTY" in engine.in_container(*TYPE_AHEAD).stdout
    ran = either.run(*TYPE_AHEAD, manifest={"syscall_policy": "inherit"})
    assert verdict(ran).words == "ENOTTY"
    ran = either.run(*TYPE_AHEAD, manifest={"syscall_policy": "baseline"})
    assert verdict(ran).words == "EPERM"
    assert ran.enforcement == {"syscall_policy": "enforced"}
    count = ["grep", "Seccomp_filters", "/proc/self/status"]
    alone = int(engine.in_container(*count).stdout.split()[1])
    for policy in ("inherit", "baseline"):
        found = either.run(*count, manifest={"syscall_policy": policy})
        assert int(found.stdout.split()[1]) > alone


def test_command_cannot_speak_for_the_init(relayed: Runner) -> None:
    """The marker of the init's messages is in its environment, which no other process can read."""
    script = "cat /proc/1/environ /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n' | grep WORD"
    assert relayed.shell(script).stdout == ""
    assert relayed.shell("tr '\\0' '\\n' < /proc/1/environ").exit_code != 0


def test_check_shows_the_docker_command(box: Runner, workspace: Path) -> None:
    manifest = {"fs_write_allow": [str(workspace)], "max_memory_bytes": 64 << 20}
    words = box.check(manifest=manifest)["command_line"]
    assert words[:2] == ["docker", "run"]
    assert f"type=bind,src={workspace},dst={workspace}" in words
    assert words[words.index("--memory") + 1] == words[words.index("--memory-swap") + 1]


@pytest.mark.parametrize(("way", "tmp"), [("with_init", "session"), ("attached", "fresh")])
def test_commands_of_a_session_share_tmp_where_the_answer_says_so(
    request: pytest.FixtureRequest, way: str, tmp: str
) -> None:
    daemon: Daemon = request.getfixturevalue(way)
    with daemon.connect(timeout_s=120) as worker, daemon.connect(timeout_s=120) as other:
        assert worker.call("session/open", {"mode": "force"})["tmp"] == tmp
        other.call("session/open", {"mode": "force"})
        worker.call("execute", {"argv": ["sh", "-c", "echo kept > /tmp/note"]})
        read = {"argv": ["cat", "/tmp/note"]}
        shared = worker.call("execute", read)["stdout"]["data"]
        assert shared == ("kept\n" if tmp == "session" else "")
        assert other.call("execute", read)["stdout"]["data"] == ""
