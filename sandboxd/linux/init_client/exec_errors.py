"""Explain why a command could not be executed, naming what is missing from the plan."""

from __future__ import annotations

import errno
import os
import pwd
import shlex
import stat
import struct
from functools import partial

from sandboxd.concurrency.bounded_thread import run_within
from sandboxd.linux.init_client.messages import ExecStage
from sandboxd.platform.regular_file import open_regular, read_most
from sandboxd.policy.data.system_dirs import PROGRAMS
from sandboxd.policy.paths.within import within, within_any
from sandboxd.resource_errors import process_limit_error
from sandboxd.types import Command
from sandboxd_proto.account_names import in_sentence
from sandboxd_proto.errors import ExecFailed, PathDenied, PolicyNotSupported, SandboxdError

LOOK_S = 1.0  # how long the host's files may be read to improve the message

_REASONS = {
    errno.ENOENT: "not found in the sandbox",
    errno.EACCES: "not executable",
    errno.ENOEXEC: "neither a script with #! nor a program for this machine",
    errno.E2BIG: "its arguments and environment are too long for the kernel",
}
_REMEDIES = {
    errno.EACCES: "make it executable (chmod +x), or run it with its interpreter",
    errno.ENOEXEC: "run it with its interpreter, or give it a first line that names one, such as "
    "#!/bin/sh",
    errno.E2BIG: "give it what is long in a file or on its input",
}


async def exec_failed(command: Command, stage: ExecStage, number: int, path: str) -> SandboxdError:
    """Runs in a thread: the paths are the caller's, and reading them may block (dead NFS)."""
    if stage is ExecStage.EXEC and number == errno.ENOENT:
        work = partial(_not_found, command, path)
        return await run_within(LOOK_S, work, _not_executed(command, number, "check the path"))
    if stage is ExecStage.EXEC and number == errno.EACCES:
        error = _exec_error(command, stage, number)
        return await run_within(LOOK_S, partial(_not_permitted, command, path, error), error)
    return _exec_error(command, stage, number)


def _not_permitted(command: Command, path: str, error: SandboxdError) -> SandboxdError:
    """The kernel's answer is the same for a folder, for a file that is not executable, and for one
    that only its owner may execute."""
    try:
        found, here = os.stat(os.path.join(command.cwd, path)), os.stat(command.cwd)
    except OSError:
        return error
    reason, remedy = "it is a folder", "name a program"
    if not stat.S_ISDIR(found.st_mode):
        mine = here.st_uid if os.geteuid() == 0 else os.geteuid()  # root's commands are the owner's
        if not found.st_mode & 0o100 or found.st_mode & 0o001 or found.st_uid == mine:
            return error
        bits = f"{stat.S_IMODE(found.st_mode):o}"
        reason = f"it belongs to {_account(found.st_uid)}, and its permission bits ({bits}) do not "
        reason += "let the user that the command runs as execute it"
        remedy = "if that user may run it, change its owner or its permission bits outside"
    return ExecFailed(
        f"{command.argv[0]} cannot be executed: {reason}", field="argv[0]", remedy=remedy,
        errno=errno.EACCES,
    )  # fmt: skip


def _account(uid: int) -> str:
    try:
        return in_sentence(pwd.getpwuid(uid).pw_name)
    except KeyError:
        return f"user {uid}"


def _exec_error(command: Command, stage: ExecStage, number: int) -> SandboxdError:
    reason = os.strerror(number)
    if stage is ExecStage.FORK and number == errno.EAGAIN:
        return process_limit_error("the command could not be started")
    if stage is ExecStage.PTY and number == errno.EINTR:
        return ExecFailed(
            "the command lost its terminal: the process that holds it was killed before it was "
            "handed over. The command may have run, and was ended", errno=number,
            remedy="a command that kills every process it sees (kill -1) needs no terminal",
        )  # fmt: skip
    if stage is not ExecStage.EXEC and number == errno.EINTR:
        return ExecFailed(
            "the command was killed before it was executed", errno=number,
            remedy="it was killed by another process (in a shared sandbox perhaps by another "
            "command of it), or by the kernel for memory; send the request again",
        )  # fmt: skip
    if stage is ExecStage.CHDIR and number == errno.EACCES:  # of the permission bits
        return PathDenied(
            f"the working directory {command.cwd} cannot be entered by the user that the command "
            f"runs as: {reason}",
            field="cwd", remedy=f'give another "cwd", such as {os.path.dirname(command.cwd)}',
        )  # fmt: skip
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
    return _not_executed(command, number, _REMEDIES.get(number, _REMEDIES[errno.EACCES]))


def _not_executed(command: Command, number: int, remedy: str) -> ExecFailed:
    reason = _REASONS.get(number, os.strerror(number))
    return ExecFailed(
        f"{command.argv[0]} cannot be executed: {reason}", field="argv[0]", remedy=remedy,
        errno=number,
    )  # fmt: skip


def _not_found(command: Command, path: str) -> ExecFailed:
    if "/" not in path:  # no folder of PATH has it: what has that name elsewhere was not tried
        return _not_in_path(command)
    file = os.path.normpath(os.path.join(command.cwd, path))
    missing = _interpreter(file)
    if missing is None:
        return _not_executed(command, errno.ENOENT, _where(command))
    which = f"its interpreter {missing} is not in the sandbox"
    remedy = f"its first line names {missing}: check that path"
    if missing.endswith("\r"):
        which = "its first line ends in a carriage return (line ends of Windows), which the kernel "
        which += f"takes for a part of the interpreter's name, {missing.rstrip()}"
        remedy = f"convert its line ends: sed -i 's/\\r$//' {shlex.quote(path)}"
    elif within_any(missing, PROGRAMS) and _is_shown(file, command.cwd):
        remedy = f"it needs {missing}: check that path, and what the sandbox shows of it"
    elif within_any(missing, PROGRAMS):
        # The kernel's answer is the same for both, and every sandbox with programs has this one.
        which, remedy = f"it, or its interpreter {missing}, is not in the sandbox", _where(command)
    elif _is_program(missing):
        remedy = f'allow it: "fs_read_allow": ["{_whole(missing)}"]'
    return ExecFailed(
        f"{path} cannot be executed: {which}", field="argv[0]", remedy=remedy, errno=errno.ENOENT
    )


def _is_shown(file: str, cwd: str) -> bool:
    """The command was started in its folder. A sandbox's / is its own."""
    return cwd != "/" and within(os.path.realpath(file), os.path.realpath(cwd))


def _not_in_path(command: Command) -> ExecFailed:
    name = command.argv[0]
    beside = os.path.join(command.cwd, name)
    if name in ("", ".", "..") or not os.path.isfile(beside) or not os.access(beside, os.X_OK):
        return _not_executed(command, errno.ENOENT, _where(command))
    return ExecFailed(
        f"{name} cannot be executed: not found in PATH", field="argv[0]",
        remedy=f"did you mean ./{shlex.quote(name)}?", errno=errno.ENOENT,
    )  # fmt: skip


def _is_program(path: str) -> bool:
    """A command may have written the first line that names it."""
    in_programs = os.path.basename(os.path.dirname(path)) == "bin"
    return in_programs and os.path.isfile(path) and os.access(path, os.X_OK)


def _whole(program: str) -> str:
    """A program of a virtual environment needs all of it."""
    prefix = os.path.dirname(os.path.dirname(program))
    return prefix if os.path.exists(os.path.join(prefix, "pyvenv.cfg")) else program


def _where(command: Command) -> str:
    name = command.argv[0]
    if "/" not in name:
        path = dict(command.env).get("PATH", "/usr/local/bin:/usr/bin:/bin (no PATH in env)")
        return f"it was searched in {path}; give PATH in env, or the absolute path"
    name = os.path.normpath(os.path.join(command.cwd, name))
    if os.path.lexists(name):
        return f'it exists on the host; allow it: "fs_read_allow": ["{_whole(name)}"]'
    return "check the path"


def _interpreter(path: str) -> str | None:
    """What a script's #! line or a program's loader entry names, read from the host's file."""
    try:
        fd = open_regular(path)
    except (OSError, ValueError):
        return None
    try:
        head = read_most(fd, 4096)
        if head.startswith(b"#!"):
            words = head[2:].split(b"\n", 1)[0].replace(b"\t", b" ").split(b" ")
            words = [word for word in words if word.strip()]
            return os.fsdecode(words[0]) if words else None
        return _elf_loader(fd, head)
    except OSError:
        return None
    finally:
        os.close(fd)


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
