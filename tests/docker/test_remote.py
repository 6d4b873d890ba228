"""An engine behind TCP, plain and with TLS: how a user outgrows one machine."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.backends import running_backend
from support.engine import TestEngine
from support.runs import Runner

pytestmark = pytest.mark.requires("socat", "openssl")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def relayed(engine: TestEngine, port: int, certificates: Path | None = None) -> Iterator[None]:
    """The engine's socket on a port of this machine; with certificates, only for its clients."""
    listen, more = "TCP-LISTEN", ""
    if certificates is not None:
        listen, more = "OPENSSL-LISTEN", ",cert=server.pem,key=server.key,cafile=ca.pem,verify=1"
    process = subprocess.Popen(
        ["socat", f"{listen}:{port},bind=127.0.0.1,reuseaddr,fork,backlog=64{more}",
         f"UNIX-CONNECT:{engine.url.removeprefix('unix://')}"],
        cwd=certificates, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        deadline = time.monotonic() + 20
        while not listens(port):
            assert time.monotonic() < deadline, "socat does not listen"
            time.sleep(0.05)
        yield
    finally:
        process.terminate()
        process.wait()


@pytest.fixture
def certificates(tmp_path: Path) -> Path:
    """A certificate authority, a server and a client, as `docker --tlsverify` wants them."""

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=tmp_path, check=True, capture_output=True)

    new = ["req", "-newkey", "rsa:2048", "-nodes", "-subj"]
    openssl(*new, "/CN=ca", "-x509", "-days", "2", "-keyout", "ca.key", "-out", "ca.pem")
    (tmp_path / "san").write_text("subjectAltName=IP:127.0.0.1\n")
    for name, key, certificate in (
        ("server", "server.key", "server.pem"), ("client", "key.pem", "cert.pem"),
    ):  # fmt: skip
        openssl(*new, f"/CN={name}", "-keyout", key, "-out", f"{name}.csr")
        signing = ["x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key"]
        openssl(*signing, "-CAcreateserial", "-days", "2", "-extfile", "san", "-out", certificate)
    return tmp_path


@pytest.mark.parametrize("backend", ["docker", "docker-attach"])
def test_engine_behind_tcp_runs_commands(backend: str, engine: TestEngine) -> None:
    port = free_port()
    with relayed(engine, port):
        env = {"DOCKER_HOST": f"tcp://127.0.0.1:{port}"}
        with running_backend(backend, env=env) as daemon:
            _serves(Runner(daemon))


def test_engine_behind_tls_runs_commands(engine: TestEngine, certificates: Path) -> None:
    port = free_port()
    with relayed(engine, port, certificates):
        env = {
            "DOCKER_HOST": f"tcp://127.0.0.1:{port}", "DOCKER_TLS_VERIFY": "1",
            "DOCKER_CERT_PATH": str(certificates),
        }  # fmt: skip
        with running_backend("docker-attach", env=env) as daemon:
            _serves(Runner(daemon))


def _serves(runner: Runner) -> None:
    assert runner.run("cat", stdin="typed").stdout == "typed"
    assert runner.run("cat").stdout == "", "the end of input did not arrive"
    assert runner.shell("echo out; echo err >&2; exit 5").raw["exit_code"] == 5
    runner.close()
