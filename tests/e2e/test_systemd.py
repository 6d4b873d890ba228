"""What systemd does with the daemon: it passes the socket, hears READY, and feeds on the watchdog.

Done here as systemd does it (LISTEN_FDS, NOTIFY_SOCKET); the units in `systemd/` say the same.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.daemon import ROOT, scrubbed_env, stdout_of
from support.rpc import Connection

from sandboxd.rpc.transport.systemd import Notifier

pytestmark = pytest.mark.requires("bubblewrap")

# LISTEN_PID must be the pid of the process that gets the socket: the shell's, which becomes it.
EXEC = 'exec 3<&"$1"; shift; LISTEN_PID=$$ LISTEN_FDS=1 exec "$@"'


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="sbxd-") as name:
        yield Path(name)


class Heard(threading.Thread):
    """Reads all the time, as systemd does: few messages fit into the socket, others are dropped."""

    def __init__(self, notify: socket.socket) -> None:
        super().__init__(daemon=True)
        self._notify = notify
        self.words: list[str] = []
        self._more = threading.Condition()

    def run(self) -> None:
        while word := self._notify.recv(1000):
            with self._more:
                self.words.append(word.decode())
                self._more.notify_all()

    def wait_for(self, *words: str) -> None:
        with self._more:
            assert self._more.wait_for(lambda: not Counter(words) - Counter(self.words), 60)


def test_an_activated_daemon_serves_the_socket_and_reports(folder: Path) -> None:
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(folder / "s"))
    listening.listen()
    notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    notify.bind(str(folder / "n"))
    (folder / "home").mkdir()
    env = scrubbed_env(
        folder / "home", {"NOTIFY_SOCKET": str(folder / "n"), "WATCHDOG_USEC": "200000"}
    )
    command = [sys.executable, "-m", "sandboxd"]
    with listening, notify:
        process = subprocess.Popen(
            ["bash", "-c", EXEC, "systemd", str(listening.fileno()), *command],
            env=env, cwd=ROOT, pass_fds=[listening.fileno()], stdout=subprocess.DEVNULL,
        )  # fmt: skip
        heard = Heard(notify)
        heard.start()
        try:
            heard.wait_for("READY=1", "WATCHDOG=1", "WATCHDOG=1")
            with Connection(str(folder / "s")) as connection:
                assert stdout_of(connection.call("execute", {"argv": ["echo", "hi"]})) == "hi\n"
                # The command does not see the socket, although its path is systemd's.
                look = {"argv": ["sh", "-c", f"test -S {folder}/s || echo masked"],
                        "manifest": {"fs_read_allow": [str(folder)]}}  # fmt: skip
                assert stdout_of(connection.call("execute", look)) == "masked\n"
        finally:
            process.terminate()
            assert process.wait(30) == 0
        heard.wait_for("STOPPING=1")
        notify.shutdown(socket.SHUT_RDWR)
        heard.join()
        assert set(heard.words) == {"READY=1", "WATCHDOG=1", "STOPPING=1"}
    assert os.path.exists(folder / "s"), "the socket is systemd's"


def test_a_socket_meant_for_another_process_is_left_alone(folder: Path) -> None:
    (folder / "home").mkdir()
    env = scrubbed_env(folder / "home", {"LISTEN_PID": "1", "LISTEN_FDS": "1"})
    command = [sys.executable, "-m", "sandboxd", "--socket", str(folder / "own")]
    process = subprocess.Popen(command, env=env, cwd=ROOT, stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process.stdout as said:
        assert str(folder / "own") in said.readline().decode()
        process.terminate()
        assert process.wait(30) == 0


@pytest.mark.timeout(60)
def test_messages_that_nobody_reads_do_not_stop_the_daemon(folder: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        notify.bind(str(folder / "n"))
        notifier = Notifier({"NOTIFY_SOCKET": str(folder / "n")})
        for _ in range(10_000):
            notifier.say("WATCHDOG=1")
        while _heard_nothing_else(notify):
            pass
        notifier.say("STOPPING=1")
        assert notify.recv(100) == b"STOPPING=1"


def _heard_nothing_else(notify: socket.socket) -> bool:
    notify.setblocking(False)
    try:
        return notify.recv(100) == b"WATCHDOG=1"
    except BlockingIOError:
        return False
