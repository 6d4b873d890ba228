"""Why a command could not be executed, in words that name what is missing from the plan."""

from __future__ import annotations

import errno
import os
import struct

from sandboxd.linux.init_wire import ExecStage
from sandboxd.sandbox import Command
from sandboxd_proto.errors import ExecFailed, PathDenied, PolicyNotSupported, SandboxdError

_REASONS = {
    errno.ENOENT: "not found in the sandbox",
    errno.EACCES: "not executable",
    errno.ENOEXEC: "neither a script with #! nor a program for this machine",
    errno.E2BIG: "its arguments and environment are too long for the kernel",
}


def exec_failed(command: Command, stage: ExecStage, number: int, path: str) -> SandboxdError:
    reason = os.strerror(number)
    if stage is ExecStage.CHDIR:
        return PathDenied(
            f"the working directory {command.cwd} cannot be entered in the sandbox: {reason}",
            field="cwd",
            remedy=f'allow it: "fs_read_allow": ["{command.cwd}"]',
        )
    if stage is ExecStage.TRACE:
        return PolicyNotSupported(
            f"the command cannot be traced here, and so not explained: {reason}", field="explain",
            remedy="kernel.yama.ptrace_scope above 1, or the filter of a container around the "
            "daemon, forbids it; run it without explain",
        )  # fmt: skip
    if stage is not ExecStage.EXEC:
        name = stage.name.lower()
        return ExecFailed(f"the command could not be prepared ({name}): {reason}", errno=number)
    missing = _interpreter(path) if number == errno.ENOENT else None
    if missing is not None:
        return ExecFailed(
            f"{path} cannot be executed: its interpreter {missing} is not in the sandbox",
            field="argv[0]",
            remedy=f'allow it: "fs_read_allow": ["{missing}"]',
            errno=number,
        )
    return ExecFailed(
        f"{command.argv[0]} cannot be executed: {_REASONS.get(number, reason)}",
        field="argv[0]",
        remedy=_remedy(command, number),
        errno=number,
    )


def _remedy(command: Command, number: int) -> str:
    name = command.argv[0]
    if number == errno.ENOENT and "/" in name:
        if os.path.lexists(name):
            return f'it exists on the host; allow it: "fs_read_allow": ["{name}"]'
        return "check the path"
    if number == errno.ENOENT:
        path = dict(command.env).get("PATH", "/usr/local/bin:/usr/bin:/bin (no PATH in env)")
        return f"it was searched in {path}; give PATH in env, or the absolute path"
    return "make it executable (chmod +x), or run it with its interpreter"


def _interpreter(path: str) -> str | None:
    """What a script's #! line or a program's loader entry names, read from the host's file."""
    try:
        with open(path, "rb") as file:
            head = file.read(4096)
            if head.startswith(b"#!"):
                words = head[2:].split(b"\n", 1)[0].split()
                return os.fsdecode(words[0]) if words else None
            return _elf_loader(file.fileno(), head)
    except OSError:
        return None


def _elf_loader(fd: int, head: bytes) -> str | None:
    """PT_INTERP of a 64-bit little-endian ELF file."""
    if len(head) < 64 or head[:6] != b"\x7fELF\x02\x01":
        return None
    (offset,) = struct.unpack_from("<Q", head, 32)
    size, count = struct.unpack_from("<HH", head, 54)
    for index in range(min(count, 64)):
        entry = os.pread(fd, 56, offset + index * size)
        if len(entry) == 56 and struct.unpack_from("<I", entry)[0] == 3:
            (start,), (length,) = (struct.unpack_from("<Q", entry, at) for at in (8, 32))
            return os.fsdecode(os.pread(fd, min(length, 4096), start).rstrip(b"\0"))
    return None
