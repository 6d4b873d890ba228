"""The real opensandbox-server, on the suite's own dockerd, with a stand-in for execd.

What they show is the lifecycle API, the server's proxy and its containers, with our init in them;
of execd they show only the stand-in (tests/support/opensandbox_server.py).
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.daemon import Daemon
from support.engine import TestEngine
from support.opensandbox_server import OTHER_PORT, RealServer, daemon_of, serving, shared_server
from support.rpc import RpcError
from support.runs import Runner

INHERIT = {"network": "inherit"}
PATIENCE_S = 300.0


@pytest.fixture(scope="module")
def server() -> RealServer:
    return shared_server()


@pytest.fixture
def engine(server: RealServer) -> TestEngine:
    return server.engine


@pytest.fixture
def url(server: RealServer) -> str:
    return server.url


@pytest.fixture(scope="module")
def real(server: RealServer) -> Iterator[Daemon]:
    with daemon_of(server) as daemon:
        yield daemon


@pytest.fixture
def box(real: Daemon) -> Iterator[Runner]:
    runner = Runner(real)
    yield runner
    runner.close()


def test_output_and_exit_code(box: Runner, engine: TestEngine) -> None:
    ran = box.shell("echo out; echo err >&2; exit 3", manifest=INHERIT)
    assert (ran.outcome, ran.exit_code) == ("exited", 3), ran.story
    assert (ran.stdout, ran.stderr) == ("out\n", "err\n")
    assert engine.containers() == []


def test_timeout_leaves_no_container(box: Runner, engine: TestEngine) -> None:
    ran = box.run("sleep", "60", manifest={**INHERIT, "timeout": 1})
    assert ran.outcome == "timeout"
    assert engine.containers() == []


def test_the_memory_limit_is_the_containers(box: Runner) -> None:
    files = "/sys/fs/cgroup/memory.max /sys/fs/cgroup/memory/memory.limit_in_bytes"
    ran = box.shell(f"cat {files} 2>/dev/null", manifest={**INHERIT, "max_memory_bytes": 64 << 20})
    assert ran.stdout == f"{64 << 20}\n"
    assert ran.enforcement["max_memory_bytes"] == "enforced"


def test_a_persistent_sandbox(real: Daemon, engine: TestEngine) -> None:
    with real.connect(timeout_s=PATIENCE_S) as connection:
        made = connection.call("sandbox/create", {"manifest": INHERIT})["sandbox"]
        for script in ("echo kept >/tmp/file", "grep -q kept /tmp/file"):
            argv = ["sh", "-c", script]
            assert connection.call("execute", {"argv": argv, "sandbox": made})["exit_code"] == 0
        assert len(engine.containers()) == 1
        connection.call("sandbox/destroy", {"sandbox": made})
    assert engine.containers() == []


def test_a_network_policy_that_the_server_refuses(box: Runner) -> None:
    with pytest.raises(RpcError) as refused:
        box.run("true", manifest={"network": "deny"})
    assert (refused.value.kind, refused.value.field) == ("PolicyNotSupported", "network")


def test_an_image_that_is_not_there(box: Runner) -> None:
    with pytest.raises(RpcError, match="no image nothing:here"):
        box.run("true", manifest={**INHERIT, "image": "nothing:here"})


def test_status(box: Runner, url: str) -> None:
    (found,) = [
        one for one in box.connection.call("status")["backends"] if one["name"] == "opensandbox"
    ]
    assert found["available"]
    assert url in str(found["layers"])


def test_a_workspace_goes_there_and_back(box: Runner, tmp_path: Path, engine: TestEngine) -> None:
    work = tmp_path / "work"
    (work / "sub").mkdir(parents=True)
    (work / "sub" / "given").write_text("given\n")
    (work / "large").write_bytes(os.urandom(5 << 20))
    ran = box.shell(
        "cat sub/given; cp large copy; rm large; echo new >sub/new; chmod 755 sub/new; "
        "chmod 6755 sub/new; pwd",
        manifest={**INHERIT, "fs_write_allow": [str(work)]}, cwd=str(work),
    )  # fmt: skip
    assert ran.exited(0), ran.story
    assert ran.stdout == f"given\n{work}\n"
    assert (work / "copy").stat().st_size == 5 << 20
    assert not (work / "large").exists()
    assert (work / "sub" / "new").stat().st_mode & 0o7777 == 0o755
    assert engine.containers() == []


def test_many_at_once(real: Daemon, engine: TestEngine) -> None:
    with real.connect(timeout_s=PATIENCE_S) as connection:
        calls = [
            connection.start("execute", {"argv": ["echo", str(number)], "manifest": INHERIT})
            for number in range(4)
        ]
        said = [connection.result(call)["stdout"]["data"] for call in calls]
    assert said == [f"{number}\n" for number in range(4)]
    assert engine.containers() == []


def test_sandboxctl_runs_and_says_what_there_is(
    real: Daemon, url: str, tmp_path: Path, engine: TestEngine
) -> None:
    """As a user does: a workspace, changed there; doctor and status name server and version."""
    (tmp_path / "given").write_text("given\n")

    def ctl(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "sandboxd_client.cli", *words], cwd=tmp_path, text=True,
            env={**os.environ, "SANDBOXD_SOCKET": real.socket, "PYTHONPATH": ":".join(sys.path)},
            stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE_S, check=False,
        )  # fmt: skip

    ran = ctl("run", "--backend", "opensandbox", "--net", "all", "-w", ".", "--",
              "sh", "-c", "cat given; echo made >made; exit 7")  # fmt: skip
    assert (ran.returncode, ran.stdout) == (7, "given\n"), ran.stderr
    assert (tmp_path / "made").read_text() == "made\n"
    for words in (["doctor"], ["status"]):
        said = ctl(*words)
        assert url in said.stdout + said.stderr, said
        assert "1.1.1" in said.stdout + said.stderr, said
    assert engine.containers() == []


def test_folders_of_this_machine_as_volumes(server: RealServer, tmp_path: Path) -> None:
    """Only a folder that the server permits, and is asked for before the command; nothing is
    written where the image's user is root, whose set-uid files would be root's."""
    volumes = server.volumes
    (volumes / "f").write_text("of the host\n")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with daemon_of(server, host_volumes="true") as daemon:
        runner = Runner(daemon)
        manifest = {**INHERIT, "fs_read_allow": [str(volumes)]}
        ran = runner.shell(f"cat {volumes}/f; echo x >{volumes}/f", manifest=manifest)
        assert ran.stdout == "of the host\n"
        assert (volumes / "f").read_text() == "of the host\n"
        for field, path, kind in (
            ("fs_read_allow", elsewhere, "PathDenied"),
            ("fs_write_allow", volumes, "PolicyNotSupported"),
        ):
            with pytest.raises(RpcError) as refused:
                runner.run("true", manifest={**INHERIT, field: [str(path)]})
            assert refused.value.kind == kind, refused.value
        runner.close()


def test_a_container_that_vanishes_under_a_command(real: Daemon, engine: TestEngine) -> None:
    """As when a sandbox expires, or a machine of the cluster dies."""
    with real.connect(timeout_s=PATIENCE_S) as connection:
        params = {"argv": ["sh", "-c", "echo up; sleep 1000"], "manifest": INHERIT, "stream": True}
        call = connection.start("execute", {**params, "execution_id": "gone"})
        connection.wait_until(lambda: connection.output("gone") == "up\n")
        engine.docker("rm", "-f", *engine.containers())
        with pytest.raises(RpcError, match="result of the command is unknown"):
            connection.result(call)


def test_a_wrong_key(server: RealServer, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("another-key-than-the-servers")
    key.chmod(0o600)
    with daemon_of(server, api_key_file=str(key)) as daemon:
        runner = Runner(daemon)
        with pytest.raises(RpcError, match="refuses the API key"):
            runner.run("true", manifest=INHERIT)
        assert "another-key" not in daemon.log
        runner.close()


def test_a_server_that_dies_in_the_middle_and_what_it_leaves(
    server: RealServer, tmp_path: Path
) -> None:
    """A second one on the same engine, so that the others stay. When it is back, the daemon deletes
    the sandbox that it could not delete before."""
    script = "echo up; sleep 1000"
    where = (server.engine, server.within, tmp_path, server.volumes, OTHER_PORT)
    with (
        serving(*where) as (url, process),
        daemon_of(server, url=url) as daemon,
        daemon.connect(timeout_s=PATIENCE_S) as connection,
    ):
        params = {"argv": ["sh", "-c", script], "manifest": INHERIT, "stream": True}
        call = connection.start("execute", {**params, "execution_id": "cut"})
        connection.wait_until(lambda: connection.output("cut") == "up\n")
        process.kill()
        with pytest.raises(RpcError, match="result of the command is unknown"):
            connection.result(call)
        assert len(server.engine.containers()) == 1
        with serving(*where):
            deadline = time.monotonic() + PATIENCE_S
            while server.engine.containers():
                assert time.monotonic() < deadline
                time.sleep(0.2)
