"""A peer that descends from the daemon is refused, whatever else is allowed.

With `allow_other_namespaces` this is the only wall between a command and a wider sandbox.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from support.daemon import ROOT, Daemon

from sandboxd.rpc.peer_auth.linux import refusal

CONNECT = """
import socket, sys
client = socket.socket(socket.AF_UNIX)
client.connect(sys.argv[1])
sys.stdin.read()
"""
RENAMED = "import ctypes; ctypes.CDLL(None).prctl(15, b') R 1 1 (', 0, 0, 0)\n" + CONNECT
LISTEN = """
import socket, sys
from sandboxd.rpc.peer_auth.linux import refusal
server = socket.socket(socket.AF_UNIX)
server.bind(sys.argv[1])
server.listen()
print("listening", flush=True)
sock, _ = server.accept()
print(refusal(sock, allow_other_namespaces=sys.argv[2] == "yes"), flush=True)
"""


@pytest.fixture
def listener(tmp_path: Path) -> socket.socket:
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(tmp_path / "s"))
    server.listen()
    return server


def peer_of(listener: socket.socket, words: Sequence[str]) -> str | None:
    """What is said to a process that connects; the daemon is this process."""
    path = listener.getsockname()
    process = subprocess.Popen([*words, path], stdin=subprocess.PIPE)
    assert process.stdin is not None
    listener.settimeout(30)
    sock, _ = listener.accept()
    try:
        found = refusal(sock, allow_other_namespaces=True)
        return found.message if found is not None else None
    finally:
        sock.close()
        process.stdin.close()
        process.wait()
        listener.close()


PYTHON = [sys.executable, "-c"]


@pytest.mark.parametrize(
    "words",
    [
        [*PYTHON, CONNECT],
        ["sh", "-c", '"$@" & wait', "sh", *PYTHON, CONNECT],
        ["setsid", "sh", "-c", 'exec 3<&0; sh -c \'"$@" <&3 & wait\' sh "$@" & wait', "sh",
         *PYTHON, CONNECT],
        [*PYTHON, RENAMED],
    ],
    ids=["child", "grandchild", "in a session of its own", "named like another"],
)  # fmt: skip
def test_a_descendant_is_refused(listener: socket.socket, words: list[str]) -> None:
    said = peer_of(listener, words)
    assert said == "a command of this daemon may not use the daemon"


@pytest.mark.requires("unprivileged")
def test_a_descendant_in_other_namespaces_is_refused(listener: socket.socket) -> None:
    words = ["unshare", "--user", "--map-current-user", "--pid", "--fork", *PYTHON, CONNECT]
    assert peer_of(listener, words) == "a command of this daemon may not use the daemon"


@pytest.mark.parametrize("others", ["yes", "no"])
def test_the_parent_of_the_daemon_is_welcome(tmp_path: Path, others: str) -> None:
    """The control: not every process is refused."""
    path = str(tmp_path / "s")
    process = subprocess.Popen(
        [*PYTHON, LISTEN, path, others], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "listening\n"
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(path)
        assert process.stdout.readline() == "None\n"
    process.wait()
    process.stdout.close()


ASK = """
import json, os, socket
client = socket.socket(socket.AF_UNIX)
client.connect(os.environ["S"])
client.sendall(b'{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}}\\n')
print(client.makefile().readline())
"""


def test_a_command_that_reaches_the_socket_is_refused(
    start_daemon: Callable[..., Daemon],
) -> None:
    """Without any sandbox, so that nothing but this check stands between them."""
    daemon = start_daemon(
        config="[peers]\nallow_other_namespaces = true\n",
        env={"SANDBOXD_BACKEND": "none", "SANDBOXD_ALLOW_NO_SANDBOX": "1"},
    )
    with daemon.connect() as client:
        result = client.call("execute", {
            "argv": ["/usr/bin/python3", "-c", ASK], "preset": "danger-full-access",
            "manifest": {"env": {"S": daemon.socket}},
        })  # fmt: skip
    answer = json.loads(result["stdout"]["data"])
    assert answer["error"]["data"]["kind"] == "Unauthorized", result
    done = subprocess.run(
        ["/usr/bin/python3", "-c", ASK], env={**os.environ, "S": daemon.socket},
        capture_output=True, check=True,
    )  # fmt: skip
    assert "result" in json.loads(done.stdout)
