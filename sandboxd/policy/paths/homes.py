"""Which home folders this machine has: the daemon's, and those of other people."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable

from sandboxd.platform.current import system
from sandboxd.policy.data.system_dirs import HOMES_FOLDER, ROOT_HOME
from sandboxd.policy.paths import recording_fs

ROOT, FOLDER = ROOT_HOME, HOMES_FOLDER
_NO_GROUP = 65534
_MOST_HOMES = 128  # beyond that /home is a file server's


def homes(*own: str) -> tuple[str, ...]:
    """Canonical home folders: these, root's, and the folders in /home."""
    found = {*map(recording_fs.realpath, own), ROOT}
    try:
        for entry in recording_fs.entries(FOLDER)[:_MOST_HOMES]:
            if entry.is_dir(follow_symlinks=False):
                found.add(entry.path)
    except OSError:
        pass
    found.discard("/")
    return tuple(sorted(found))


def expand(path: str, people: Iterable[str]) -> list[str]:
    """`~` and `~/…` in the home of each of these: the variable HOME and the user database can
    differ, and so can the daemon's user and the command's. What is hidden or protected has to be so
    in all of them. `~user/…` and any other path: the one that it is."""
    if path == "~" or path.startswith("~/"):
        return [home.rstrip("/") + path[1:] or "/" for home in people]
    return [recording_fs.expanduser(path)]


def home_of(uid: int) -> str | None:
    """Another user's home folder, for a daemon of root."""
    recording_fs.rests_on("/etc/passwd")
    home = system.home_of(uid)
    return home if home is not None and recording_fs.isdir(home) and home != "/" else None


def name_of(uid: int) -> str | None:
    recording_fs.rests_on("/etc/passwd")
    return system.name_of(uid)


def group_of(uid: int, of_paths: set[int]) -> int:
    """The user's primary group. The group of a path may have rights that its owner has not, so it
    counts for a user without an account only where it is that user's own, by its number, and no
    group of this machine."""
    recording_fs.rests_on("/etc/passwd")
    recording_fs.rests_on("/etc/group")
    group = system.group_of(uid)
    if group is not None:
        return group
    return uid if of_paths == {uid} and not system.is_group(uid) else _NO_GROUP


def reachable(path: str, uid: int, gid: int) -> bool:
    """Whether every folder above `path` lets this user through.

    A daemon of root drops to the workspace's owner before it mounts; what the owner cannot reach
    cannot be mounted, and would fail the whole request. Access lists are not read.
    """
    at = posixpath.dirname(path)
    while True:
        try:
            status = recording_fs.stat(at)
        except OSError:
            return False
        bit = 0o100 if status.st_uid == uid else 0o010 if status.st_gid == gid else 0o001
        if not status.st_mode & bit:
            return False
        if at == "/":
            return True
        at = posixpath.dirname(at)
