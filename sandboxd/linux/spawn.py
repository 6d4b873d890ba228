"""Start a helper process and wait for its end, on the event loop's own thread.

posix_spawn is used because it does not copy the daemon (vfork), and because its file actions say
exactly which descriptors the child gets. bwrap's --die-with-parent is bound to the *thread* that
forked it: a spawn from a worker thread would be killed when that thread ends.
"""

from __future__ import annotations

import os
import select
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from sandboxd import event_loop

# Python ignores these; an ignored signal stays ignored across exec.
_RESET = (signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGTERM)


def has_ended(pidfd: int) -> bool:
    waiter = select.poll()
    waiter.register(pidfd, select.POLLIN)
    return bool(waiter.poll(0))


class Helper:
    """A child of the daemon, watched through its pidfd. `close` after `ended` or `kill`."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._pidfd = os.pidfd_open(pid)
        self.status: int | None = None

    async def ended(self) -> int:
        """The wait status, once the process is gone and reaped."""
        while self.status is None:
            await event_loop.wait_readable(self._pidfd)
            self.poll()
        return self.status

    def poll(self) -> int | None:
        if self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status = status
                os.close(self._pidfd)
        return self.status

    def is_dead(self) -> bool:
        return self.status is not None or has_ended(self._pidfd)

    def reap_later(self, done: Callable[[], None]) -> None:
        """For a process that ends by itself, and that nothing waits for; then `done` is called."""
        if self.poll() is None:
            event_loop.add_reader(self._pidfd, self._reap, done)
        else:
            done()

    def _reap(self, done: Callable[[], None]) -> None:
        event_loop.remove_reader(self._pidfd)
        self.poll()
        done()

    def kill(self) -> None:
        """Includes its session, where a wrapper was started in place of the program."""
        if self.status is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)  # not reaped yet, so the pid was not reused
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)


def spawn(
    argv: list[str], env: Mapping[str, str], inherit: Sequence[int], *, stderr: int,
    stdout: int | None = None,
) -> Helper:  # fmt: skip
    """`inherit`: the descriptors that the child keeps, under the same numbers.

    BlockingIOError when this user or container can have no more processes.
    """
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("only the event loop's own thread forks")
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    actions: list[tuple[int, ...]] = [
        (os.POSIX_SPAWN_DUP2, null, 0),
        (os.POSIX_SPAWN_DUP2, null if stdout is None else stdout, 1),
        (os.POSIX_SPAWN_DUP2, stderr, 2),
        # dup2 onto itself clears close-on-exec in the child only (glibc 2.29 and later).
        *((os.POSIX_SPAWN_DUP2, fd, fd) for fd in inherit),
    ]
    try:
        pid = os.posix_spawn(
            argv[0], argv, env, file_actions=actions, setsid=True, setsigdef=_RESET, setsigmask=()
        )
    finally:
        os.close(null)
    return Helper(pid)
