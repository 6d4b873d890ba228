"""The real opensandbox-server, on the suite's own dockerd, with a stand-in for execd.

The real execd image cannot be had where these tests run, so what they show is the lifecycle API and
the server's proxy; about execd they show nothing. dockerd, the server and the daemon are in a
network namespace of their own, where dockerd has its bridge. The image that enforces a network
policy cannot be had either, so the server refuses one.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.daemon import Daemon, running_daemon
from support.engine import IMAGE, TestEngine, possible, running_engine
from support.requirements import is_promised
from support.rpc import RpcError
from support.runs import Runner

KEY = "the-key-of-the-real-server"
INHERIT = {"network": "inherit"}
START_S = 60.0
BOOTSTRAP = '#!/bin/sh\npython3 /opt/opensandbox/execd &\nexec "$@"\n'
CONFIG = """
[server]
host = "127.0.0.1"
port = {port}
api_key = "{key}"
[runtime]
type = "docker"
execd_image = "execd:tests"
[store]
type = "sqlite"
path = "{folder}/store.db"
[docker]
network_mode = "bridge"
[storage]
allowed_host_paths = ["{volumes}"]
"""


@pytest.fixture(scope="module")
def within() -> Iterator[list[str]]:
    """What starts a program in a network namespace of its own."""
    script = "ip link set lo up && echo up && exec sleep infinity"
    holder = subprocess.Popen(["unshare", "--net", "sh", "-c", script], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"up\n"
    yield ["nsenter", f"--net=/proc/{holder.pid}/ns/net", "--"]
    holder.kill()
    holder.communicate()


@pytest.fixture(scope="module")
def engine(request: pytest.FixtureRequest) -> Iterator[TestEngine]:
    program = os.environ.get("SANDBOXD_TEST_OPENSANDBOX_SERVER", "")
    if not possible() or not os.access(program, os.X_OK):
        why = "it takes root, dockerd and SANDBOXD_TEST_OPENSANDBOX_SERVER (make test-opensandbox)"
        if is_promised("opensandbox"):
            pytest.fail(f"opensandbox is in SANDBOXD_TEST_REQUIRE and {why}", pytrace=False)
        pytest.skip(why)
    with running_engine(within=request.getfixturevalue("within")) as engine:
        engine.build_image(IMAGE, "--with", "bash")
        yield engine


@pytest.fixture(scope="module")
def volumes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the server may mount."""
    return tmp_path_factory.mktemp("volumes")


@pytest.fixture(scope="module")
def url(
    engine: TestEngine, within: list[str], volumes: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("server")
    _make_execd_image(engine, folder)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    config = folder / "config.toml"
    config.write_text(CONFIG.format(port=port, key=KEY, folder=folder, volumes=volumes))
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(
            [*within, os.environ["SANDBOXD_TEST_OPENSANDBOX_SERVER"], "--config", str(config)],
            env={**os.environ, "DOCKER_HOST": engine.url, "HOME": str(folder)},
            stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        )  # fmt: skip
    try:
        address = f"http://127.0.0.1:{port}"
        _until_up(within, address, folder / "log")
        yield address
    finally:
        server.terminate()
        server.wait(30)


def _make_execd_image(engine: TestEngine, folder: Path) -> None:
    """What the server takes out of it: /execd and /bootstrap.sh."""
    shutil.copy(Path(__file__).parents[1] / "support" / "execd.py", folder / "execd")
    (folder / "bootstrap.sh").write_text(BOOTSTRAP)
    container = engine.docker("create", "--network=none", IMAGE, "true").stdout.strip()
    for name in ("execd", "bootstrap.sh"):
        (folder / name).chmod(0o755)
        engine.docker("cp", str(folder / name), f"{container}:/{name}")
    engine.docker("commit", container, "execd:tests")
    engine.docker("rm", container)


def _until_up(within: list[str], address: str, log: Path) -> None:
    deadline = time.monotonic() + START_S
    ask = [*within, sys.executable, "-c", "import sys, urllib.request as r; r.urlopen(sys.argv[1])"]
    while subprocess.run([*ask, f"{address}/version"], capture_output=True, check=False).returncode:
        assert time.monotonic() < deadline, log.read_text(errors="replace")[-3000:]
        time.sleep(0.1)


@contextmanager
def daemon_of(url: str, within: list[str], folder: Path, **more: str) -> Iterator[Daemon]:
    key = folder / "key"
    key.write_text(KEY)
    key.chmod(0o600)
    settings = {"url": url, "api_key_file": str(key), "image": IMAGE, "start_secs": "60", **more}
    env = {f"SANDBOXD_OPENSANDBOX_{name.upper()}": value for name, value in settings.items()}
    keys = {"SANDBOXD_BACKEND": "opensandbox", "SANDBOXD_POOL_ENABLED": "false"}
    with running_daemon(env={**keys, **env}, prefix=within) as daemon:
        yield daemon


@pytest.fixture(scope="module")
def real(url: str, within: list[str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with daemon_of(url, within, tmp_path_factory.mktemp("key")) as daemon:
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
    with real.connect(timeout_s=60) as connection:
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
        "cat sub/given; cp large copy; rm large; echo new >sub/new; chmod 6755 sub/new; pwd",
        manifest={**INHERIT, "fs_write_allow": [str(work)]}, cwd=str(work),
    )  # fmt: skip
    assert ran.exited(0), ran.story
    assert ran.stdout == f"given\n{work}\n"
    assert (work / "copy").stat().st_size == 5 << 20
    assert not (work / "large").exists()
    assert (work / "sub" / "new").stat().st_mode & 0o7777 == 0o755
    assert engine.containers() == []


def test_many_at_once(real: Daemon, engine: TestEngine) -> None:
    with real.connect(timeout_s=100) as connection:
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
            stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False,
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


def test_folders_of_this_machine_as_volumes(
    url: str, within: list[str], volumes: Path, tmp_path: Path
) -> None:
    """Only a folder that the server permits, and is asked for before the command; nothing is
    written where the image's user is root, whose set-uid files would be root's."""
    (volumes / "f").write_text("of the host\n")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with daemon_of(url, within, tmp_path, host_volumes="true") as daemon:
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
