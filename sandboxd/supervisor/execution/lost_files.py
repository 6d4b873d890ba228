"""Files that a command left in the sandbox's own /tmp, /var/tmp or /dev/shm, which end with it.

What the command line itself names and does not use again, and what is in the folder that it starts
in; other files that programs leave there are temporary. Whether it is there is looked up in the
sandbox before that ends; only a command that names such a place or starts in one costs that.
"""

from __future__ import annotations

import stat
import struct
from collections.abc import Iterable, Iterator, Sequence
from posixpath import join

import anyio

from sandboxd import event_loop
from sandboxd.denials.text.command_line import CommandLine
from sandboxd.denials.text.known_programs import written
from sandboxd.denials.text.temporary_names import (
    PLACES,
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
from sandboxd.policy.paths.within import is_below, within, within_any
from sandboxd.policy.plan import Limits, Plan
from sandboxd.supervisor.execution.lease import Lease
from sandboxd.types import Command
from sandboxd_proto.errors import SandboxdError

_MARKS = ("/tmp", "/dev/shm")
_LONGEST = 2048  # characters: the event loop parses them
_LOOK_S = 1.0
_MOST_SHOWN = 4
_MOST_LISTED = 64
_REMOVES = frozenset({"rm", "rmdir", "unlink", "shred", "chmod", "chown", "chgrp"})
_MISSED = frozenset(kind >> 12 for kind in (stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK))


def may_lose_files(plan: Plan, argv: Sequence[str]) -> bool:
    """For a sandbox of the command's own. Almost every command line names no such place."""
    marks = (*_MARKS, "..") if place_of(plan.cwd) else _MARKS
    if not _starts_in_place(plan) and not any(mark in word for word in argv for mark in marks):
        return False
    shared = plan.sandbox.shared_tmp is not None or plan.backend == "none"
    return not shared and sum(map(len, argv)) <= _LONGEST


async def lost_files(plan: Plan, argv: Sequence[str], lease: Lease) -> list[str]:
    """A warning for a command that succeeded, before its sandbox is released."""
    command = CommandLine(with_absolute_parents(argv, plan.cwd))
    able = lease.backend.capabilities
    if not able.mounts:
        return []  # /tmp is the host's, and closed
    guess = left_for_later(command, plan.cwd, _granted(plan)) if able.files else _written(command)
    paths = _not_kept(plan, guess)
    if able.files and (paths or _starts_in_place(plan)):
        paths = await _there(plan, paths, lease)
    return [_warning(group, place) for place in PLACES if (group := _in_place(paths, place))]


def _warning(paths: Sequence[str], place: str) -> str:
    shown = ", ".join(map(named, paths[:_MOST_SHOWN]))
    more = f" and {len(paths) - _MOST_SHOWN} more" if len(paths) > _MOST_SHOWN else ""
    are, them, their = ("is", "it", "its") if len(paths) == 1 else ("are", "them", "their")
    return (
        f"{shown}{more} {are} gone: the sandbox had a {place} of its own, which ended with the "
        f"command. To keep {them}, write into the workspace, or name {their} folder in "
        "fs_write_allow"
    )


def _in_place(paths: Iterable[str], place: str) -> list[str]:
    return [path for path in paths if place_of(path) == place]


def _granted(plan: Plan) -> list[str]:
    return [grant.path for grant in plan.sandbox.grants]


def _not_kept(plan: Plan, paths: Iterable[str]) -> list[str]:
    """Without what the host has, and the folders around it: those are mount points."""
    spec = plan.sandbox
    there = [
        *_granted(plan),
        *(one.path for one in spec.masks),
        *(one.path for one in spec.protected),
        *(one.path for one in spec.links),
    ]
    return [path for path in paths if not any(within(path, k) or within(k, path) for k in there)]


def _starts_in_place(plan: Plan) -> bool:
    """In a folder there that the sandbox made for it, or in the place itself."""
    in_place = any(within(plan.cwd, place) for place in PLACES)
    return in_place and not within_any(plan.cwd, _granted(plan))


async def _there(plan: Plan, paths: Sequence[str], lease: Lease) -> list[str]:
    """Those that are there. What answers is in the sandbox, and may answer anything."""
    looking = Command(
        argv=("sandboxd-files",), env=(), cwd="/", limits=Limits(),
        syscall_policy=plan.syscall_policy, files=True, timeout_s=_LOOK_S,
    )  # fmt: skip
    await event_loop.enter_task()
    with anyio.move_on_after(_LOOK_S):  # for all of them
        try:
            server = await start(lease.sandbox, looking)
        except SandboxdError:
            return []
        try:
            found = [path for path in paths if await _is_there(server, path)]
            if _starts_in_place(plan) and place_of(plan.cwd):
                found += _not_kept(plan, await _listed(server, plan.cwd))
            found = list(dict.fromkeys(found))
            return [one for one in found if not any(is_below(path, one) for path in found)]
        except SandboxdError:
            return []
        finally:
            server.close()
    return []


async def _is_there(server: FileServer, path: str) -> bool:
    fields = string(path) + struct.pack("<I", 0)
    try:
        answer = await server.request(FileOperation.STAT, fields, _LOOK_S)
    except FileFailed:
        return False
    return answer.status().kind in _MISSED


async def _listed(server: FileServer, folder: str) -> list[str]:
    fields = string(folder) + struct.pack("<II", 0, _MOST_LISTED)
    try:
        answer = await server.request(FileOperation.LIST, fields, _LOOK_S)
    except FileFailed:
        return []
    count, _ = answer.number("I"), answer.number("I")
    entries = [(answer.string(), answer.status()) for _ in range(min(count, _MOST_LISTED))]
    return sorted(join(folder, name) for name, status in entries if status.kind in _MISSED)


def _written(command: CommandLine) -> Iterator[str]:
    """By the command line alone, where nobody can look."""
    for one in command.simple:
        for path in written(one) if one.program not in _REMOVES else ():
            if place_of(path) == "/tmp" and command.text.count(path) == 1:
                yield path
