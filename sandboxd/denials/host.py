"""The real host behind a `HostView`: the only part of the classifier that looks at the machine."""

from __future__ import annotations

import os
import posixpath
import stat
from functools import lru_cache, partial
from itertools import islice
from typing import Literal

from sandboxd.denials.context import HostFile, HostView
from sandboxd.platform.current import files, places, system
from sandboxd.policy.paths.hanging_mounts import HANGING
from sandboxd.policy.paths.within import is_below, within
from sandboxd.policy.plan import Access, RunAs
from sandboxd_proto.account_names import in_sentence


def host_view(run_as: RunAs | None = None) -> HostView:
    """For commands that run as the daemon's own user, or as the one that it drops to."""
    return HostView(
        exists=_exists,
        is_dir=_is_dir,
        permits=partial(_permits, run_as),
        canonical=_canonical,
        pid_exists=system.process_exists,
        listens=system.listens,
        listens_at=system.listens_at,
        barrier=partial(_barrier, run_as),
        owner=_owner,
        user=partial(_user, run_as),
        foreign_home=partial(_foreign_home, run_as),
        home=next(iter(_own_homes(run_as)), ""),
        file=partial(_file, run_as),
        entries=partial(_entries, run_as),
    )


def _cannot_look(path: str) -> bool:
    """A command chooses what it names: a path on a mount that may hang is not looked at."""
    return bool(HANGING.reached((path,)))


def _exists(path: str) -> bool:
    if _cannot_look(path):
        return False
    try:
        return files.lexists(path)
    except ValueError:
        return False


def _is_dir(path: str) -> bool:
    return not _cannot_look(path) and files.isdir(path)


def _canonical(path: str) -> str:
    if _cannot_look(path):
        return path
    try:
        return files.realpath(path)
    except (OSError, ValueError):
        return path


def _permits(run_as: RunAs | None, path: str, access: Access) -> bool:
    """Permission bits of the path, or of the nearest folder that exists when it is to be made."""
    if access == "write":
        while path != "/" and not _exists(path):
            path = posixpath.dirname(path)
    if _cannot_look(path):
        return False
    try:
        if run_as is None:
            return files.access(path, os.W_OK if access == "write" else os.R_OK)
        return _bits(files.stat(path), run_as, access)
    except (OSError, ValueError):
        return False


def _bits(status: os.stat_result, who: RunAs, access: Access | Literal["enter"]) -> bool:
    wanted = {"read": stat.S_IRUSR, "write": stat.S_IWUSR, "enter": stat.S_IXUSR}[access]
    if status.st_uid == who.uid:
        return bool(status.st_mode & wanted)
    if status.st_gid == who.gid:
        return bool(status.st_mode & wanted >> 3)
    return bool(status.st_mode & wanted >> 6)


def _barrier(run_as: RunAs | None, path: str, access: Access, top: str) -> str | None:
    """The path whose bits keep a user without capabilities out; `top`: a folder that is entered."""
    who = run_as or RunAs(*system.effective_ids())
    if _cannot_look(path):
        return None
    try:
        for folder in _folders_between(top, path):
            if not _bits(files.stat(folder), who, "enter"):
                return folder
        while access == "write" and path != "/" and not _exists(path):
            path = posixpath.dirname(path)
        return None if _bits(files.stat(path), who, access) else path
    except (OSError, ValueError):
        return None


def _folders_between(top: str, path: str) -> list[str]:
    """Existing folders above `path`, from `top` on."""
    found: list[str] = []
    while is_below(path, top):
        path = posixpath.dirname(path)
        found.append(path)
    return [folder for folder in reversed(found) if _is_dir(folder)]


def _owner(path: str) -> str:
    if _cannot_look(path):
        return "another user"
    try:
        return in_sentence(user_name(files.stat(path).st_uid))
    except (OSError, ValueError):
        return "another user"


def _user(run_as: RunAs | None) -> str:
    return in_sentence(user_name(run_as.uid if run_as is not None else system.user_id()))


@lru_cache(maxsize=64)
def user_name(uid: int) -> str:
    return system.name_of(uid) or f"user {uid}"


def _file(run_as: RunAs | None, path: str) -> HostFile | None:
    if _cannot_look(path):
        return None
    try:
        return _described(run_as, posixpath.basename(path), files.stat(path))
    except (OSError, ValueError):
        return None


def _entries(run_as: RunAs | None, path: str, most: int) -> list[HostFile] | None:
    if _cannot_look(path):
        return None
    try:
        with files.scandir(path) as found:
            names = [entry.name for entry in islice(found, most + 1)]
        if len(names) > most:
            return None
        statuses = [(name, files.lstat(posixpath.join(path, name))) for name in names]
    except (OSError, ValueError):
        return None
    return [_described(run_as, name, status) for name, status in statuses]


def _described(run_as: RunAs | None, name: str, status: os.stat_result) -> HostFile:
    uid = run_as.uid if run_as is not None else system.user_id()
    mode = status.st_mode
    own = status.st_uid == uid or uid < 0  # Windows has no numbers for users
    if stat.S_ISDIR(mode):
        return HostFile(name, "folder", own=own)
    if not stat.S_ISREG(mode):
        return HostFile(name, "link" if stat.S_ISLNK(mode) else "other", own=own)
    shared = stat.S_IRGRP | stat.S_IROTH if own else stat.S_IROTH
    private = uid >= 0 and not mode & shared
    program, linked = bool(mode & 0o111), status.st_nlink > 1
    return HostFile(
        name, "file", own, private, program, linked, inode=(status.st_dev, status.st_ino)
    )


def _foreign_home(run_as: RunAs | None, path: str) -> bool:
    own = _own_homes(run_as)
    for folder in (*places.HOME_PARENTS, "/Users"):
        if is_below(path, folder):
            home = "/".join(path.split("/")[: folder.count("/") + 2])
            return home not in own
    return any(within(path, home) for _, home in _homes() if home not in own)


def _own_homes(run_as: RunAs | None) -> list[str]:
    uid = run_as.uid if run_as is not None else system.user_id()
    return [home for owner, home in _homes() if owner == uid]


@lru_cache(maxsize=1)
def _homes() -> tuple[tuple[int, str], ...]:
    """(uid, home) of people and of root, also where links lead to."""
    found = tuple(system.people(_cannot_look))
    return tuple(dict.fromkeys([*found, *((uid, _canonical(home)) for uid, home in found)]))
