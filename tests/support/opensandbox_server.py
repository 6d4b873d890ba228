"""The real opensandbox-server, on a dockerd of the tests' own, with a stand-in for execd.

The real execd image cannot be had where these tests run. dockerd, the server and the daemon are in
a network namespace of their own, where dockerd has its bridge. The image that enforces a network
policy cannot be had either, so the server refuses one.
"""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from support.daemon import Daemon, running_daemon
from support.engine import IMAGE, TestEngine, possible, running_engine
from support.requirements import is_promised

PROGRAM = "SANDBOXD_TEST_OPENSANDBOX_SERVER"
KEY = "the-key-of-the-real-server"
START_S = 300.0
STOP_S = 60.0
# In the network namespace, where nothing else listens, and no outgoing connection gets such a port.
PORT, OTHER_PORT = 8090, 8091
BOOTSTRAP = '#!/bin/sh\npython3 /opt/opensandbox/execd &\nexec "$@"\n'
UNTIL_UP = """
import sys, time, urllib.request
deadline = time.monotonic() + float(sys.argv[2])
while True:
    try:
        urllib.request.urlopen(sys.argv[1], timeout=60)
        break
    except OSError as error:
        if time.monotonic() > deadline:
            sys.exit(f"the server does not answer: {error}")
        time.sleep(0.1)
"""
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


@dataclass(frozen=True)
class RealServer:
    """`within`: what starts a program in its network namespace. `volumes`: what it may mount."""

    url: str
    engine: TestEngine
    within: list[str]
    volumes: Path


def skip_without() -> None:
    if possible() and os.access(os.environ.get(PROGRAM, ""), os.X_OK):
        return
    why = f"it takes root, dockerd and {PROGRAM} (make test-opensandbox)"
    if is_promised("opensandbox"):
        pytest.fail(f"opensandbox is in SANDBOXD_TEST_REQUIRE and {why}", pytrace=False)
    pytest.skip(why)


@contextmanager
def running_server() -> Iterator[RealServer]:
    skip_without()
    with (
        tempfile.TemporaryDirectory(prefix="opensandbox-") as folder,
        _namespace() as within,
        running_engine(within=within) as engine,
    ):
        engine.build_image(IMAGE, "--with", "bash")
        _make_images(engine, Path(folder))
        volumes = Path(folder, "volumes")
        volumes.mkdir()
        with serving(engine, within, Path(folder), volumes) as (url, _):
            yield RealServer(url, engine, within, volumes)


@cache
def shared_server() -> RealServer:
    """One for all tests of a run, which end it."""
    stack = ExitStack()
    atexit.register(stack.close)
    return stack.enter_context(running_server())


@contextmanager
def _namespace() -> Iterator[list[str]]:
    script = "ip link set lo up && echo up && exec sleep infinity"
    holder = subprocess.Popen(["unshare", "--net", "sh", "-c", script], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"up\n"
    try:
        yield ["nsenter", f"--net=/proc/{holder.pid}/ns/net", "--"]
    finally:
        holder.kill()
        holder.communicate()


@contextmanager
def serving(
    engine: TestEngine, within: list[str], folder: Path, volumes: Path, port: int = PORT
) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """A server that keeps its records in `folder`, and its process."""
    address = f"http://127.0.0.1:{port}"
    config = folder / "config.toml"
    config.write_text(CONFIG.format(port=port, key=KEY, folder=folder, volumes=volumes))
    env = {**os.environ, "DOCKER_HOST": engine.url, "HOME": str(folder)}
    # It keeps what it compiles in its own environment: the next start is three times as fast.
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(
            [*within, os.environ[PROGRAM], "--config", str(config)],
            env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        )  # fmt: skip
    try:
        ask = [*within, sys.executable, "-c", UNTIL_UP, f"{address}/version", str(START_S)]
        asking = subprocess.run(ask, capture_output=True, text=True, check=False)
        said = (folder / "log").read_text(errors="replace")[-3000:]
        assert asking.returncode == 0, f"{asking.stderr}\n{said}"
        yield address, server
    finally:
        server.terminate()
        server.wait(STOP_S)


def _make_images(engine: TestEngine, folder: Path) -> None:
    """The image that the server takes /execd and /bootstrap.sh from. Both it and the image of the
    sandboxes have compiled modules: otherwise every start of execd would compile them."""
    shutil.copy(Path(__file__).with_name("execd.py"), folder / "execd")
    (folder / "bootstrap.sh").write_text(BOOTSTRAP)
    compiling = ["python3", "-c", "import runpy; runpy.run_path('/execd')"]
    container = engine.docker("create", "--network=none", IMAGE, *compiling).stdout.strip()
    for name in ("execd", "bootstrap.sh"):
        (folder / name).chmod(0o755)
        engine.docker("cp", str(folder / name), f"{container}:/{name}")
    engine.docker("start", "--attach", container)
    for tag in (IMAGE, "execd:tests"):
        engine.docker("commit", container, tag)
    engine.docker("rm", container)


@contextmanager
def real_options(server: RealServer, env: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """The environment of a daemon that uses the server."""
    with tempfile.TemporaryDirectory() as folder:
        key = Path(folder, "key")
        key.write_text(KEY)
        key.chmod(0o600)
        settings = {"url": server.url, "api_key_file": str(key), "image": IMAGE}
        named = {f"SANDBOXD_OPENSANDBOX_{name.upper()}": value for name, value in settings.items()}
        fixed = {"SANDBOXD_BACKEND": "opensandbox", "SANDBOXD_POOL_ENABLED": "false"}
        yield {**fixed, **named, **env}


@contextmanager
def daemon_of(server: RealServer, **settings: str) -> Iterator[Daemon]:
    env = {f"SANDBOXD_OPENSANDBOX_{name.upper()}": value for name, value in settings.items()}
    with (
        real_options(server, env) as made,
        running_daemon(env=made, prefix=server.within) as daemon,
    ):
        yield daemon
