"""Signals as bytes on a pipe, so that one poll() waits for them together with everything else.

A signal that was ignored when we started (nohup, a background job of a script) stays ignored.
`_signal` is what `signal` wraps in enums; the wrapping costs a quarter of Python's start.
"""

from __future__ import annotations

import os
import sys

assert sys.platform != "win32"

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
else:
    import _signal

INT, QUIT, TERM, HUP = _signal.SIGINT, _signal.SIGQUIT, _signal.SIGTERM, _signal.SIGHUP
WINCH, TSTP, CONT = _signal.SIGWINCH, _signal.SIGTSTP, _signal.SIGCONT
USR1, USR2 = _signal.SIGUSR1, _signal.SIGUSR2
WATCHED = (INT, QUIT, TERM, HUP, WINCH, TSTP, CONT, USR1, USR2)


class Signals:
    """From `with` on, the watched signals are read here instead of ending the process."""

    def __init__(self) -> None:
        self.fd, self._write = os.pipe()
        for fd in (self.fd, self._write):
            os.set_blocking(fd, False)

    def __enter__(self) -> Signals:
        _signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for number in WATCHED:
            if _signal.getsignal(number) != _signal.SIG_IGN:
                _signal.signal(number, _noted)
        return self

    def __exit__(self, *exc: object) -> None:
        _signal.set_wakeup_fd(-1)
        for number in WATCHED:
            if _signal.getsignal(number) is _noted:
                _signal.signal(number, _signal.SIG_DFL)
        os.close(self.fd)
        os.close(self._write)

    def read(self) -> list[int]:
        try:
            return list(os.read(self.fd, 64))
        except BlockingIOError:
            return []


def stop_self() -> None:
    """Stop like any program that Ctrl-Z stops; returns when it is continued."""
    os.kill(os.getpid(), _signal.SIGSTOP)


def _noted(number: int, frame: object) -> None:
    """Only the byte on the wakeup pipe matters."""
