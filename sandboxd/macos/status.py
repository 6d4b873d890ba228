"""Parse the launcher's status: text of sandbox-exec, then NUL S, or NUL E and what failed."""

from __future__ import annotations

import errno
import os
import struct

import msgspec

from sandboxd.types import Command
from sandboxd_proto.errors import ExecFailed, PathDenied, SandboxdError

MOST_BYTES = 8192

_STAGES = {
    "a": "arguments", "l": "limits", "t": "terminal", "u": "user", "m": "memory",
    "d": "descriptors", "o": "sandbox-exec",
}  # fmt: skip
_REASONS = {
    errno.ENOENT: "not found in the sandbox",
    errno.EACCES: "not executable, or not in the sandbox",
    errno.EPERM: "not executable, or not in the sandbox",
    errno.ENOEXEC: "neither a script with #! nor a program for this machine",
    errno.E2BIG: "its arguments and environment are too long for the kernel",
}


class LauncherStatus(msgspec.Struct, frozen=True):
    """`started`: the sandbox is up. `failed`: (stage, errno) of what the launcher could not do."""

    text: str
    started: bool
    failed: tuple[str, int] | None


def decode(raw: bytes) -> LauncherStatus:
    """Everything up to the end of the pipe."""
    text, *marks = raw.split(b"\0S", 1)
    started = bool(marks)
    rest = marks[0] if marks else raw
    before, mark, failure = rest.partition(b"\0E")
    failed = None
    if mark and len(failure) >= 5:
        (number,) = struct.unpack_from("=i", failure, 1)
        failed = (chr(failure[0]), number)
    shown = text if started else before
    return LauncherStatus(shown.decode(errors="replace").strip(), started, failed)


def exec_error(command: Command, stage: str, number: int) -> SandboxdError:
    reason = os.strerror(number)
    if stage == "c":
        return PathDenied(
            f"the working directory {command.cwd} cannot be entered: {reason}", field="cwd",
            remedy=f'allow it: "fs_read_allow": ["{command.cwd}"]',
        )  # fmt: skip
    if stage != "x":
        name = _STAGES.get(stage, stage)
        return ExecFailed(f"the command could not be prepared ({name}): {reason}", errno=number)
    missing = _interpreter(command) if number == errno.ENOENT else None
    if missing is not None:
        return ExecFailed(
            f"{command.argv[0]} cannot be executed: its interpreter {missing} is not in the "
            "sandbox",
            field="argv[0]", remedy=f'allow it: "fs_read_allow": ["{missing}"]', errno=number,
        )  # fmt: skip
    return ExecFailed(
        f"{command.argv[0]} cannot be executed: {_REASONS.get(number, reason)}",
        field="argv[0]", remedy=_remedy(command, number), errno=number,
    )  # fmt: skip


def _remedy(command: Command, number: int) -> str:
    name = command.argv[0]
    if "/" not in name:
        path = dict(command.env).get("PATH", "the usual folders (no PATH in env)")
        return f"it was searched in {path}; give PATH in env, or the absolute path"
    if number == errno.ENOENT and not os.path.lexists(name):
        return "check the path"
    if os.path.isdir(os.path.join(command.cwd, name)):
        return "it is a folder: name a program"
    if os.access(name, os.X_OK):
        return f'it can be executed on the host; allow it: "fs_read_allow": ["{name}"]'
    return "make it executable (chmod +x), or run it with its interpreter"


def _interpreter(command: Command) -> str | None:
    """What the #! line of a script names, read from the host's file."""
    if "/" not in command.argv[0]:
        return None
    try:
        fd = os.open(os.path.join(command.cwd, command.argv[0]), os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        head = os.read(fd, 4096)
    except OSError:
        return None
    finally:
        os.close(fd)
    words = head[2:].split(b"\n", 1)[0].split() if head.startswith(b"#!") else []
    return os.fsdecode(words[0]) if words else None
