"""The modes of the caller's terminal: raw while a sandboxed one is shown in it, or single keys.

Only a foreground process may change a terminal (SIGTTOU stops the others), so raw mode is claimed
when we are in the foreground, and again after each SIGCONT. A shell sends none to a job that runs
in the background when it brings it to the foreground: until then we look.
"""

from __future__ import annotations

import os
import select
import sys

assert sys.platform != "win32"

import termios  # noqa: E402 - after the platform is known

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from sandboxd_client.cli.approver_connection import ApproverConnection

_IFLAG, _OFLAG, _CFLAG, _LFLAG, _CC = 0, 1, 2, 3, 6


def foreground(fd: int) -> bool:
    """True where there is no job control."""
    try:
        return os.tcgetpgrp(fd) == os.getpgrp()
    except OSError:
        return True


def line_mode(fd: int) -> bool:
    """False: some program (a pager) has switched the terminal, so what is typed is for that one."""
    try:
        return bool(termios.tcgetattr(fd)[_LFLAG] & termios.ICANON)
    except termios.error:
        return True


class RawMode:
    """`claim` and `release` may be called any number of times, in any order."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._before: list[Any] | None = None

    @property
    def is_claimed(self) -> bool:
        return self._before is not None

    def claim(self) -> None:
        if self._before is not None or not foreground(self._fd):
            return
        try:
            before = termios.tcgetattr(self._fd)
            termios.tcsetattr(self._fd, termios.TCSANOW, _raw(before))
        except termios.error:
            return
        self._before = before

    def release(self) -> None:
        before, self._before = self._before, None
        if before is None or not foreground(self._fd):
            return
        try:
            termios.tcsetattr(self._fd, termios.TCSANOW, before)
        except termios.error:
            return


def _raw(mode: list[Any]) -> list[Any]:
    """What cfmakeraw does: every key goes to the program in the sandbox, nothing is echoed here."""
    raw = [*mode[:_CC], list(mode[_CC])]
    raw[_IFLAG] &= ~(
        termios.IGNBRK | termios.BRKINT | termios.PARMRK | termios.ISTRIP | termios.INLCR
        | termios.IGNCR | termios.ICRNL | termios.IXON
    )  # fmt: skip
    raw[_OFLAG] &= ~termios.OPOST
    raw[_LFLAG] &= ~(termios.ECHO | termios.ECHONL | termios.ICANON | termios.ISIG | termios.IEXTEN)
    raw[_CFLAG] = (raw[_CFLAG] & ~(termios.CSIZE | termios.PARENB)) | termios.CS8
    raw[_CC][termios.VMIN], raw[_CC][termios.VTIME] = 1, 0
    return raw


class SingleKeys:
    """`with SingleKeys():` keys are read one by one, without echo; Ctrl-C is one of them.
    `wake`: a descriptor that ends a wait when it is readable."""

    wake: int | None = None

    def __enter__(self) -> SingleKeys:
        self._before = termios.tcgetattr(0)
        mode = termios.tcgetattr(0)
        mode[_LFLAG] &= ~(termios.ICANON | termios.ECHO | termios.ISIG)
        termios.tcsetattr(0, termios.TCSANOW, mode)
        return self

    def __exit__(self, *error: object) -> None:
        termios.tcsetattr(0, termios.TCSANOW, self._before)

    def wait(self, link: ApproverConnection, timeout_s: float | None) -> tuple[bool, bool]:
        """Whether a key was pressed, and whether something came from the daemon."""
        more = [] if self.wake is None else [self.wake]
        readable, _, _ = select.select([0, link.fileno(), *more], [], [], timeout_s)
        return 0 in readable, link.fileno() in readable

    def read(self, most: int = 1) -> str:
        """What was typed; "" at the end of the input."""
        try:
            return os.read(0, most).decode("ascii", "replace")
        except OSError:
            return ""  # the terminal hung up


def drop_typed() -> None:
    """Forget the keys that were not read yet."""
    termios.tcflush(0, termios.TCIFLUSH)
