"""`sandboxctl` with a real daemon: on pipes, and on a terminal where keys are pressed."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from support.daemon import Daemon
from support.rpc import PATIENCE_S

CTL = [sys.executable, "-m", "sandboxd_client.cli"]


def environment(daemon: Daemon) -> dict[str, str]:
    return {**os.environ, "SANDBOXD_SOCKET": daemon.socket, "TERM": "dumb"}


def ctl(daemon: Daemon, *words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*CTL, *words], env=environment(daemon), capture_output=True, text=True, timeout=60,
        check=False, cwd=cwd,
    )  # fmt: skip


class Terminal:
    """A command of ours on a terminal."""

    def __init__(self, master: int, process: subprocess.Popen[bytes]) -> None:
        self.master, self.process, self.shown = master, process, ""

    def wait_for(self, text: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while text not in self.shown:
            left = deadline - time.monotonic()
            assert left > 0, f"{text!r} was not shown: {self.shown}"
            readable, _, _ = select.select([self.master], [], [], left)
            if readable:
                self.shown += os.read(self.master, 65536).decode(errors="replace")

    def answer(self, question: str, key: str) -> None:
        """Once the question is shown, and reads keys."""
        self.wait_for(question)
        deadline = time.monotonic() + PATIENCE_S
        while "q quit" not in self.shown.rpartition(question)[2]:
            assert time.monotonic() < deadline, self.shown
            self.shown += os.read(self.master, 65536).decode(errors="replace")
        time.sleep(0.6)
        self.press(key)

    def press(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    def press_until_it_ends(self, key: str) -> int:
        """Again and again: a key that comes right after the question is dropped."""
        deadline = time.monotonic() + PATIENCE_S
        while self.process.poll() is None:
            assert time.monotonic() < deadline, self.shown
            self.press(key)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(0.3)
        self.read_on()
        return self.process.returncode

    def end(self) -> int:
        self.read_on()
        return self.process.wait(PATIENCE_S)

    def read_on(self) -> None:
        """Until nobody has the terminal any more."""
        with suppress(OSError):
            while select.select([self.master], [], [], PATIENCE_S)[0]:
                self.shown += os.read(self.master, 65536).decode(errors="replace")


@contextmanager
def on_terminal(
    daemon: Daemon, *words: str, cwd: Path | None = None, stdout: int | None = None
) -> Iterator[Terminal]:
    """`stdout`: in the place of the terminal."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [*CTL, *words], stdin=slave, stdout=slave if stdout is None else stdout, stderr=slave,
        env=environment(daemon), cwd=cwd, start_new_session=True,
    )  # fmt: skip
    os.close(slave)
    try:
        yield Terminal(master, process)
    finally:
        process.kill()
        process.wait()
        os.close(master)
