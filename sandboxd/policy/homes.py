"""Which home folders this machine has: the daemon's, and those of other people."""

from __future__ import annotations

import os
import sys

from sandboxd.policy import hostfs

_MOST_HOMES = 128  # beyond that a listing of /home is somebody's file server


def homes(*own: str) -> tuple[str, ...]:
    """Canonical home folders: these, root's, and the folders in /home."""
    found = {*map(hostfs.realpath, own), "/root"}
    try:
        for entry in hostfs.entries("/home")[:_MOST_HOMES]:
            if entry.is_dir(follow_symlinks=False):
                found.add(entry.path)
    except OSError:
        pass
    found.discard("/")
    return tuple(sorted(found))


def home_of(uid: int) -> str | None:
    """Another user's home folder, for a daemon of root."""
    if sys.platform == "win32":
        return None
    import pwd

    hostfs.rests_on("/etc/passwd")
    try:
        home = pwd.getpwuid(uid).pw_dir
    except KeyError:
        return None
    return home if hostfs.isdir(home) and home != "/" else None


def reachable(path: str, uid: int, gid: int) -> bool:
    """Whether every folder above `path` lets this user through.

    A daemon of root drops to the workspace's owner before it mounts; what the owner cannot reach
    cannot be mounted, and would fail the whole request. Access lists are not read.
    """
    at = os.path.dirname(path)
    while True:
        try:
            status = hostfs.stat(at)
        except OSError:
            return False
        bit = 0o100 if status.st_uid == uid else 0o010 if status.st_gid == gid else 0o001
        if not status.st_mode & bit:
            return False
        if at == "/":
            return True
        at = os.path.dirname(at)
