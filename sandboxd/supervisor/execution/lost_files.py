"""Files that a command left in the sandbox's own /tmp, /var/tmp or /dev/shm, which end with it.

Only what the command line itself names and does not use again: what programs leave there unasked
nobody misses. Whether it is there is looked up in the sandbox before that ends; only a command line
that names such a place costs that.
"""

from __future__ import annotations

import stat
import struct
from collections.abc import Iterator, Sequence

import anyio

from sandboxd import event_loop
from sandboxd.denials.text.command_line import CommandLine
from sandboxd.denials.text.known_programs import written
from sandboxd.denials.text.temporary_names import (
    left_for_later,
    place_of,
    with_absolute_parents,
)
from sandboxd.linux.init_client.file_server import (
    FileFailed,
    FileOperation,
    FileServer,
    start,
    string,
)
from sandboxd.policy.display_names import named
from sandboxd.policy.paths.within import within
from sandboxd.policy.plan import Limits, Plan
from sandboxd.supervisor.execution.lease import Lease
from sandboxd.types import Command
from sandboxd_proto.errors import SandboxdError

_MARKS = ("/tmp", "/dev/shm")
_LONGEST = 2048  # characters: the event loop parses them
_LOOK_S = 1.0
_REMOVES = frozenset({"rm", "rmdir", "unlink", "shred", "chmod", "chown", "chgrp"})
_MISSED = frozenset(kind >> 12 for kind in (stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK))


def may_lose_files(plan: Plan, argv: Sequence[str]) -> bool:
    """For a sandbox of the command's own. Almost every command line names no such place."""
    marks = (*_MARKS, "..") if place_of(plan.cwd) else _MARKS
    if not any(mark in word for word in argv for mark in marks):
        return False
    shared = plan.sandbox.shared_tmp is not None or plan.backend == "none"
    return not shared and sum(map(len, argv)) <= _LONGEST


async def lost_files(plan: Plan, argv: Sequence[str], lease: Lease) -> list[str]:
    """A warning for a command that succeeded, before its sandbox is released."""
    command = CommandLine(with_absolute_parents(argv, plan.cwd))
    able = lease.backend.capabilities
    if not able.mounts:
        return []  # /tmp is the host's, and closed
    kept = [grant.path for grant in plan.sandbox.grants]
    paths = left_for_later(command, plan.cwd, kept) if able.files else tuple(_written(command))
    # A folder around a grant is a mount point.
    paths = tuple(p for p in paths if not any(within(p, k) or within(k, p) for k in kept))
    if able.files and paths:
        paths = await _there(plan, paths, lease)
    if not paths:
        return []
    return [
        f"{named(paths[0])} is gone: the sandbox had a {place_of(paths[0])} of its own, which "
        "ended with the command. To keep it, write into the workspace, or name its folder in "
        "fs_write_allow"
    ]


async def _there(plan: Plan, paths: tuple[str, ...], lease: Lease) -> tuple[str, ...]:
    """The first of them that is there. What answers is in the sandbox, and may answer anything."""
    looking = Command(
        argv=("sandboxd-files",), env=(), cwd="/", limits=Limits(),
        syscall_policy=plan.syscall_policy, files=True, timeout_s=_LOOK_S,
    )  # fmt: skip
    await event_loop.enter_task()
    with anyio.move_on_after(_LOOK_S):  # for all of them
        try:
            server = await start(lease.sandbox, looking)
        except SandboxdError:
            return ()
        try:
            return await _first(server, paths)
        except SandboxdError:
            return ()
        finally:
            server.close()
    return ()


async def _first(server: FileServer, paths: tuple[str, ...]) -> tuple[str, ...]:
    for path in paths:
        try:
            answer = await server.request(
                FileOperation.STAT, string(path) + struct.pack("<I", 0), _LOOK_S
            )
        except FileFailed:
            continue
        if answer.status().kind in _MISSED:
            return (path,)
    return ()


def _written(command: CommandLine) -> Iterator[str]:
    """By the command line alone, where nobody can look."""
    for one in command.simple:
        for path in written(one) if one.program not in _REMOVES else ():
            if place_of(path) == "/tmp" and command.text.count(path) == 1:
                yield path
