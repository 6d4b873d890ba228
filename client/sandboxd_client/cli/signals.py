r"""Signals as bytes on a pipe, so that one poll() waits for them together with everything else.

A signal that was ignored when we started (nohup, a background job of a script) stays ignored.
Where the user ended the command with Ctrl-C or Ctrl-\, we die of the same signal: a shell ends its
loop or script only when its child did. Any other signal stays an exit code, 128+n.
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
STOP, TTOU = _signal.SIGSTOP, _signal.SIGTTOU
USR1, USR2 = _signal.SIGUSR1, _signal.SIGUSR2
KEYS = {INT: b"\x03", QUIT: b"\x1c"}  # what a terminal sends these for
WATCHED = (INT, QUIT, TERM, HUP, WINCH, TSTP, CONT, USR1, USR2)

_CTRL_C = b"\x03"
_ECHO = b"^C"


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


class Interrupted(KeyboardInterrupt):
    """The user ended the command with a signal, and everything is said. `typed`: with a key that
    the command's own terminal made a signal, so that nobody else got one."""

    def __init__(self, number: int, *, typed: bool = False) -> None:
        super().__init__(number)
        self.number, self.typed = number, typed


_sent: dict[int, bool] = {}  # by the user to the command, and whether typed


def user_sent(number: int, *, typed: bool) -> None:
    _sent[number] = typed


def is_sent() -> bool:
    """Whether the user sent the command any."""
    return bool(_sent)


def was_sent(number: object) -> bool:
    """Whether the user sent the command this one."""
    return number in _sent


def exit_like(code: int, number: object) -> int:
    """The exit code of sandboxctl, unless the user ended the command with the signal `number`."""
    if isinstance(number, int) and number in _sent:
        raise Interrupted(number, typed=_sent[number])
    return code


def die(cause: KeyboardInterrupt) -> int:
    """Returns only where the signal is ignored: the exit code then."""
    number = cause.number if isinstance(cause, Interrupted) else INT
    if _signal.getsignal(number) != _signal.SIG_IGN:
        if number == QUIT:
            _leave_no_core()
        _signal.signal(number, _signal.SIG_DFL)
        _signal.pthread_sigmask(_signal.SIG_UNBLOCK, [number])
        everybody = isinstance(cause, Interrupted) and cause.typed and _has_terminal()
        os.kill(0 if everybody else os.getpid(), number)
    return 128 + number


def _has_terminal() -> bool:
    """Whether the keys of our terminal are signals to our process group, and nobody else's."""
    try:
        return os.tcgetpgrp(0) == os.getpgrp()
    except OSError:
        return False


def _leave_no_core() -> None:
    """Of us: the command's own is the one to look at. A limit of 1 also holds for a program that
    the kernel pipes cores to."""
    import resource

    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    resource.setrlimit(resource.RLIMIT_CORE, (0 if hard == 0 else 1, hard))


def stop_self(number: int = STOP) -> bool:
    """Stop like any program that Ctrl-Z or the terminal stops; returns when it is continued. False:
    it did not stop. SIGTTOU may be ignored, and does not stop a group without a shell above it."""
    before = _signal.pthread_sigmask(_signal.SIG_BLOCK, [CONT])
    os.kill(os.getpid(), number)
    was_stopped = CONT in _signal.sigpending()
    _signal.pthread_sigmask(_signal.SIG_SETMASK, before)
    return was_stopped


def _noted(number: int, frame: object) -> None:
    """Only the byte on the wakeup pipe matters."""


class Interrupts:
    """When Ctrl-C means "kill it": the second one, unless the program is one that uses the key.

    With pipes a Ctrl-C is a SIGINT to us, and the second one kills. In a terminal of its own the
    program gets the key itself, and many take it without ending: editors, shells, prompts. There
    the second Ctrl-C in a row kills only if the first had no effect but the terminal's own echo of
    it.
    """

    def __init__(self) -> None:
        self._signalled = False
        self._since: bytes | None = None  # what was printed since Ctrl-C was the last key

    def first(self) -> bool:
        """A SIGINT arrived; whether it is the first."""
        if self._signalled:
            return False
        self._signalled = True
        return True

    def typed(self, keys: bytes) -> bool:
        """Keys for the program's terminal; whether they mean that it should be killed instead."""
        if keys != _CTRL_C:
            self._since = None
            return False
        ignored = self._since == _ECHO
        self._since = b""
        return ignored

    def printed(self, data: bytes) -> None:
        if self._since is not None and len(self._since) <= len(_ECHO):
            self._since += data[: len(_ECHO) + 1]
