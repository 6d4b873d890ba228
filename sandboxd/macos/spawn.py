"""Start a command through the launcher and sandbox-exec: its arguments, and its first process."""

from __future__ import annotations

import math
import os
import signal
import sys
import threading

import msgspec

from sandboxd.macos.profile import Profile
from sandboxd.macos.system import MacSystem
from sandboxd.policy.plan import RunAs
from sandboxd.types import Command

assert sys.platform != "win32"

_STATUS, _STDERR = 3, 4  # as in launcher.c
# Python ignores some of these; an ignored signal stays ignored across exec.
_RESET = (
    signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGTERM, signal.SIGHUP,
    signal.SIGQUIT,
)  # fmt: skip
# Of the launcher and of sandbox-exec, outside the sandbox. The command's own is an argument.
_ENVIRONMENT = {"PATH": "/usr/bin:/bin"}


class Spawned(msgspec.Struct, frozen=True):
    """`status`: what the launcher writes; not blocking; the caller closes it."""

    pid: int
    status: int


def arguments(
    system: MacSystem, profile: Profile, command: Command, run_as: RunAs | None
) -> list[str]:
    """The whole command line. Pure."""
    limits = command.limits
    cpu = None if limits.cpu_s is None else math.ceil(limits.cpu_s) + 1  # a backstop for the watch
    uid, gid = (None, None) if run_as is None else (run_as.uid, run_as.gid)
    outer = [command.pty and 1, uid, gid, cpu, limits.file_bytes]
    pairs = [f"{name}={value}" for name, value in command.env]
    return [
        system.launcher, "outside", *("-" if value is None else str(value) for value in outer),
        command.cwd, system.sandbox_exec, *profile.arguments(), "--",
        system.launcher, "inside", str(len(pairs)), *pairs, *command.argv,
    ]  # fmt: skip


def spawn(argv: list[str], stdin: int, stdout: int, stderr: int) -> Spawned:
    """A process in a session of its own. OSError when there is none (E2BIG, EAGAIN)."""
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("only the event loop's own thread starts processes")
    ours, theirs = os.pipe()
    try:
        # The numbers that are given must not be overwritten before they are used.
        sources = [_above(fd) for fd in (stdin, stdout, theirs, theirs, stderr)]
        try:
            actions = [(os.POSIX_SPAWN_DUP2, fd, target) for target, fd in enumerate(sources)]
            pid = os.posix_spawn(
                argv[0], argv, _ENVIRONMENT, file_actions=actions, setsid=True, setsigdef=_RESET,
                setsigmask=(),
            )  # fmt: skip
        finally:
            for fd in sources:
                os.close(fd)
    except BaseException:
        os.close(ours)
        raise
    finally:
        os.close(theirs)
    os.set_blocking(ours, False)
    return Spawned(pid, ours)


def _above(fd: int) -> int:
    """A copy that is no target of another: above the five that the launcher is given."""
    import fcntl

    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _STDERR + 1)
