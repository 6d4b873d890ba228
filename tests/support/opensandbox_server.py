"""The real opensandbox-server, on a dockerd of the tests' own, with a stand-in for execd.

The real execd image cannot be had where these tests run. dockerd, the server and the daemon are in
a network namespace of their own, where dockerd has its bridge. The image that enforces a network
policy cannot be had either, so the server refuses one.
"""

from __future__ import annotations

import atexit
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
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
START_S = 100.0
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
        _make_execd_image(engine, Path(folder))
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
    engine: TestEngine, within: list[str], folder: Path, volumes: Path, address: str = ""
) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """A server that keeps its records in `folder`, and its process. `address`: of one before it."""
    if not address:
        with socket.create_server(("127.0.0.1", 0)) as free:
            address = f"http://127.0.0.1:{free.getsockname()[1]}"
    port = address.rpartition(":")[2]
    config = folder / "config.toml"
    config.write_text(CONFIG.format(port=port, key=KEY, folder=folder, volumes=volumes))
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(
            [*within, os.environ[PROGRAM], "--config", str(config)],
            env={**os.environ, "DOCKER_HOST": engine.url, "HOME": str(folder)},
            stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        )  # fmt: skip
    try:
        _until_up(within, address, folder / "log")
        yield address, server
    finally:
        server.terminate()
        server.wait(30)


def _make_execd_image(engine: TestEngine, folder: Path) -> None:
    """What the server takes out of it: /execd and /bootstrap.sh."""
    shutil.copy(Path(__file__).with_name("execd.py"), folder / "execd")
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
