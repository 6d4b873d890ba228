"""A terminal with a program in it, driven like a person would: type, look, wait."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import Any

_TAKE_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execvp(sys.argv[1], sys.argv[1:])
"""


def in_terminal(argv: list[str]) -> list[str]:
    """The command, after it made its stdin the controlling terminal of its new session."""
    return [sys.executable, "-S", "-c", _TAKE_TERMINAL, *argv]


class Screen:
    """A program in a terminal of its own, and what it shows there."""

    def __init__(
        self, argv: list[str], cwd: Path, env: dict[str, str], rows: int = 31, cols: int = 97
    ) -> None:
        self.master, self.slave = pty.openpty()
        self.resize(rows, cols)
        self.before = termios.tcgetattr(self.slave)
        self.shown = b""
        self.process = subprocess.Popen(
            in_terminal(argv), stdin=self.slave, stdout=self.slave,
            stderr=self.slave, cwd=cwd, env=env, start_new_session=True,
        )  # fmt: skip

    def until(self, text: bytes, limit_s: float = 20, *, count: int = 1) -> None:
        deadline = time.monotonic() + limit_s
        while self.shown.count(text) < count:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.master], [], [], left)[0]:
                raise AssertionError(f"{text!r} never came: {self.shown!r}")
            self.shown += os.read(self.master, 65536)

    def look(self) -> None:
        if select.select([self.master], [], [], 0.02)[0]:
            self.shown += os.read(self.master, 65536)

    def until_raw(self, limit_s: float = 20) -> None:
        deadline = time.monotonic() + limit_s
        while self.mode()[3] & termios.ICANON:
            assert time.monotonic() < deadline, f"never raw: {self.shown!r}"
            self.look()

    def resize(self, rows: int, cols: int) -> None:
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

    def type(self, keys: bytes) -> None:
        os.write(self.master, keys)

    def end(self, limit_s: float = 20) -> int:
        deadline = time.monotonic() + limit_s
        while self.process.poll() is None and time.monotonic() < deadline:
            self.look()
        while select.select([self.master], [], [], 0)[0]:
            self.shown += os.read(self.master, 65536)
        return self.process.wait(timeout=1)

    def mode(self) -> list[Any]:
        return termios.tcgetattr(self.slave)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.master)
        os.close(self.slave)
