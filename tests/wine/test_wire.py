"""JSON-RPC over the named pipe: framings, many clients, a slow reader, a daemon that dies."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from wine.conftest import BOTH_KEYS, ELEVATED, WindowsDaemon, command, start

from sandboxd_client import transport
from sandboxd_client.client import Client
from sandboxd_client.errors import DaemonNotRunning
from sandboxd_proto.errors import SandboxdError

CLIENTS = 50


def ask(sock: object, body: bytes, end: bytes) -> bytes:
    sock.sendall(body)  # type: ignore[attr-defined]
    data = b""
    while not data.endswith(end):
        piece = sock.recv(65536)  # type: ignore[attr-defined]
        assert piece, data
        data += piece
    return data


def test_lines_and_content_length_are_both_spoken(unsandboxed: WindowsDaemon) -> None:
    request = json.dumps({"jsonrpc": "2.0", "id": 7, "method": "status", "params": {}}).encode()
    sock = transport.connect(unsandboxed.pipe)
    try:
        line = json.loads(ask(sock, request + b"\n", b"\n"))
    finally:
        sock.close()
    assert line["id"] == 7
    assert "backends" in line["result"]
    sock = transport.connect(unsandboxed.pipe)
    try:
        framed = ask(sock, b"Content-Length: %d\r\n\r\n%s" % (len(request), request), b"}")
    finally:
        sock.close()
    head, _, body = framed.partition(b"\r\n\r\n")
    assert head.startswith(b"Content-Length: ")
    assert json.loads(body)["id"] == 7


def test_fifty_clients_at_once_are_all_served(unsandboxed: WindowsDaemon) -> None:
    answers: list[str] = []
    errors: list[Exception] = []
    together = threading.Barrier(CLIENTS)

    def work() -> None:
        try:
            together.wait(30)
            with Client(unsandboxed.pipe) as client:
                answers.append(client.initialize().server.name)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert errors == []
    assert answers == ["sandboxd"] * CLIENTS


def test_a_client_that_does_not_read_holds_up_no_other(unsandboxed: WindowsDaemon) -> None:
    program = "import sys\nfor _ in range(400): sys.stdout.write('x' * 65536)"
    params = {
        "argv": [sys.executable, "-c", program], "stream": True, "manifest": {
            "env": unsandboxed.env, "timeout": 60,
        },
    }  # fmt: skip
    request = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "execute", "params": params})
    slow = transport.connect(unsandboxed.pipe)
    try:
        slow.sendall(request.encode() + b"\n")
        time.sleep(1.0)  # its command fills the pipe meanwhile
        with Client(unsandboxed.pipe) as client:
            result = client.execute(
                ["cmd.exe", "/c", "echo here"], manifest={"env": unsandboxed.env}
            )
        assert result.stdout.data.strip() == "here"
    finally:
        slow.close()


def test_descriptors_are_refused_with_the_reason(unsandboxed: WindowsDaemon) -> None:
    params = {"argv": ["cmd.exe"], "fds": {"stdout": 0}, "manifest": {"env": unsandboxed.env}}
    request = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "execute", "params": params})
    sock = transport.connect(unsandboxed.pipe)
    try:
        answer = json.loads(ask(sock, request.encode() + b"\n", b"\n"))
    finally:
        sock.close()
    assert answer["error"]["data"]["kind"] == "PolicyNotSupported"
    assert answer["error"]["data"]["field"] == "fds"


def test_a_pty_is_refused(unsandboxed: WindowsDaemon) -> None:
    with (
        Client(unsandboxed.pipe) as client,
        pytest.raises(SandboxdError, match="not supported on Windows"),
    ):
        client.execute(["cmd.exe"], pty={"rows": 24, "cols": 80}, manifest={"env": unsandboxed.env})


def test_a_second_daemon_on_the_same_pipe_does_not_start(unsandboxed: WindowsDaemon) -> None:
    ended = subprocess.run(
        command(unsandboxed.pipe), env={**os.environ, **BOTH_KEYS}, capture_output=True, timeout=60
    )
    assert ended.returncode == 1
    assert b"another sandboxd listens on" in ended.stderr


def test_a_killed_daemon_ends_its_clients_and_its_commands(tmp_path: Path) -> None:
    pipe = rf"\\.\pipe\sandboxd-kill-{os.getpid()}"
    daemon = start(pipe, tmp_path, BOTH_KEYS, *ELEVATED)
    note = tmp_path / "beats"
    program = (
        "import sys, time\n"
        "while True:\n"
        "    open(sys.argv[1], 'a').write('.')\n"
        "    time.sleep(0.1)\n"
    )
    lost: list[Exception] = []

    def work() -> None:
        try:
            with Client(daemon.pipe) as client:
                client.execute(
                    [sys.executable, "-c", program, str(note)], manifest={"env": daemon.env}
                )
        except Exception as error:
            lost.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    deadline = time.monotonic() + 30
    while not note.exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert note.exists(), "the command did not start"
    daemon.kill()
    thread.join(30)
    assert [getattr(error, "kind", "") for error in lost] == ["ConnectionLost"]
    time.sleep(1.0)
    size = note.stat().st_size
    time.sleep(1.0)
    assert note.stat().st_size == size, "the command outlived the daemon"
    with pytest.raises(DaemonNotRunning):
        transport.connect(daemon.pipe)
