"""A process that outlives the daemon for a moment, and ends what it left running.

macOS has no PDEATHSIG. The daemon names every tag before it starts the command and takes it back
when the command's tree is gone; the end of the pipe means that the daemon is gone.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress

from sandboxd.macos.census import Census
from sandboxd.macos.tree import LOOK_S, MOST_LOOKS, Tree

assert sys.platform != "win32"

MODULE = "sandboxd.macos.lifeline"


class Lifeline:
    """The daemon's half. A lifeline that has ended is replaced, and told every tag again."""

    def __init__(self, module: str = MODULE) -> None:
        self._module = module
        self._tags: dict[str, int] = {}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    def hold(self, tag: str, uid: int) -> None:
        """Returns when the lifeline has been told: only then may the command be started."""
        self._tags[tag] = uid
        if self._process is None or self._process.poll() is not None:
            self._start()
        else:
            self._tell(f"+ {tag} {uid}\n")

    def release(self, tag: str) -> None:
        if self._tags.pop(tag, None) is not None and self._process is not None:
            with suppress(OSError):  # it has ended, and the next one is not told of this tag
                self._tell(f"- {tag}\n")

    def close(self) -> None:
        """What is still held is ended by the lifeline."""
        process, self._process = self._process, None
        if process is not None and process.stdin is not None:
            process.stdin.close()
            try:
                process.wait(MOST_LOOKS * LOOK_S * 2)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _start(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
        # Its own session: a signal to the daemon's terminal or group does not reach it.
        self._process = subprocess.Popen(
            [sys.executable, "-m", self._module], stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL, start_new_session=True, bufsize=0,
        )  # fmt: skip
        for tag, uid in self._tags.items():
            self._tell(f"+ {tag} {uid}\n")

    def _tell(self, line: str) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        # Far below PIPE_BUF: it is written whole. The reader does nothing else than read.
        self._process.stdin.write(line.encode())


def held_at_end(lines: Iterator[str]) -> dict[str, int]:
    """Which tags were not taken back when the daemon ended. A cut last line is not one."""
    held: dict[str, int] = {}
    for line in lines:
        match line.split():
            case ["+", tag, uid] if line.endswith("\n"):
                held[tag] = int(uid)
            case ["-", tag] if line.endswith("\n"):
                held.pop(tag, None)
    return held


def end_all(held: dict[str, int], census: Census) -> None:
    """Until two looks in a row find no process of any tag."""
    trees = [Tree(census, tag, uid, leader=0) for tag, uid in held.items()]
    quiet = 0
    for _ in range(MOST_LOOKS):
        found = [tree.end_once(group=False) for tree in trees]
        quiet = 0 if any(found) else quiet + 1
        if quiet == 2:
            return
        time.sleep(LOOK_S)


def main(census: Census) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    os.chdir("/")
    end_all(held_at_end(iter(sys.stdin)), census)


if __name__ == "__main__":
    from sandboxd.macos.census import SandboxCensus

    main(SandboxCensus())
