"""Which peers are refused: of other users, of other namespaces, descendants of the daemon.

With `allow_other_namespaces` only the last check stands between a command and a wider sandbox.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from support.daemon import ROOT, Daemon

from sandboxd.rpc.peer_auth.linux import refusal

CONNECT = """
import socket, sys
client = socket.socket(socket.AF_UNIX)
client.connect(sys.argv[1].replace("@", chr(0)))
sys.stdin.read()
"""
RENAMED = "import ctypes; ctypes.CDLL(None).prctl(15, b') R 1 1 (', 0, 0, 0)\n" + CONNECT
# A name that begins with `@` is one of the abstract namespace: no file, and no mode.
LISTEN = """
import socket, sys
from sandboxd.rpc.peer_auth.linux import refusal
server = socket.socket(socket.AF_UNIX)
server.bind(sys.argv[1].replace("@", chr(0)))
server.listen()
print("listening", flush=True)
sock, _ = server.accept()
print("accepted", flush=True)
sys.stdin.readline()
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
        ["sh", "-c", 'exec 3<&0; "$@" <&3 & wait', "sh", *PYTHON, CONNECT],
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


@pytest.fixture
def said_to() -> Iterator[Callable[..., str]]:
    """What a daemon says to a peer that does not descend from it. `gone`: the peer has ended by
    then, and is not reaped, so that its pid is still in /proc."""
    started: list[subprocess.Popen[str]] = []

    def start(words: Sequence[str]) -> subprocess.Popen[str]:
        made = subprocess.Popen(
            words, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        started.append(made)
        return made

    def ask(words: Sequence[str], *, others: bool = False, gone: bool = False) -> str:
        name = f"@sandboxd-test-{os.urandom(8).hex()}"
        daemon = start([*PYTHON, LISTEN, name, "yes" if others else "no"])
        assert daemon.stdin is not None
        assert daemon.stdout is not None
        assert daemon.stdout.readline() == "listening\n"
        peer = start([*words, name])
        assert daemon.stdout.readline() == "accepted\n"
        if gone:
            assert peer.stdin is not None
            peer.stdin.close()
            os.waitid(os.P_PID, peer.pid, os.WEXITED | os.WNOWAIT)
        daemon.stdin.write("\n")
        daemon.stdin.flush()
        return daemon.stdout.readline().strip()

    yield ask
    for one in started:
        one.kill()
        with one:  # closes its pipes, which ends what it forked
            pass


@pytest.mark.parametrize("others", [True, False])
def test_a_process_of_the_same_user_is_welcome(said_to: Callable[..., str], others: bool) -> None:
    """The control: not every process is refused."""
    assert said_to([*PYTHON, CONNECT], others=others) == "None"


@pytest.mark.requires("root")
def test_another_user_is_refused(said_to: Callable[..., str]) -> None:
    become = "import os; os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
    said = said_to([*PYTHON, become + CONNECT], others=True)
    assert said.startswith("this daemon serves uid 0, and not uid 65534")


@pytest.mark.parametrize(("option", "name"), [("--user", "user"), ("--pid", "pid")])
def test_a_peer_in_another_namespace_is_refused(
    said_to: Callable[..., str], option: str, name: str
) -> None:
    words = ["unshare", "--user", "--map-current-user", option, "--fork", *PYTHON, CONNECT]
    assert f"is in another {name} namespace" in said_to(words)
    assert said_to(words, others=True) == "None"


@pytest.mark.requires("unprivileged")
def test_a_peer_whose_namespaces_cannot_be_read_is_refused(said_to: Callable[..., str]) -> None:
    not_dumpable = "import ctypes; ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)\n"
    said = said_to([*PYTHON, not_dumpable + CONNECT])
    assert "does not let its pid namespace be read" in said


def test_a_peer_that_ended_is_refused(said_to: Callable[..., str]) -> None:
    """Another process may have its pid by the time it is looked at."""
    said = said_to([*PYTHON, CONNECT], others=True, gone=True)
    assert said.startswith("the peer ended before it could be checked")


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
