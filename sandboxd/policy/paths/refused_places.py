"""Folders that no request may name: of the kernel, of the system, homes of other users.

A command that can write programs, settings or boot files of the machine decides what the host runs
next, and a whole home folder or /var holds more than any command needs. The check applies to
workspaces and to the paths of a manifest. An unprivileged user cannot write most of these folders;
a daemon of root can.
"""

from __future__ import annotations

import stat
from collections.abc import Iterable

from sandboxd.policy.data.system_dirs import NEVER_WRITABLE, TOO_WIDE
from sandboxd.policy.paths import recording_fs
from sandboxd.policy.paths.homes import home_of, homes
from sandboxd.policy.paths.within import is_below, within, within_any
from sandboxd.policy.plan import Access
from sandboxd_proto.errors import PathDenied

_HIDDEN = {
    "/proc": "the sandbox has a /proc of its own",
    "/dev": "the sandbox has a /dev of its own, and devices of the host are never shown",
}
# Images of containers keep projects here.
_PROJECTS = ("/usr/src", "/usr/local/src")
# Folders of root in here are the system's; in these they need not be.
_STATE, _SHARED_STATE = ("/var", "/run"), ("/var/tmp", "/var/www")


def refuse_place(path: str, access: Access, field: str, *, uid: int, home: str) -> None:
    """PathDenied if no request may name the path. `uid` and `home` are the daemon's."""
    for place, why in _HIDDEN.items():
        if within(path, place):
            raise PathDenied(f"{path} cannot be allowed: {why}", field=field)
    if access == "read":
        return
    why_not = _why_not_writable(path, uid, home)
    if why_not is not None:
        raise PathDenied(
            f"{path} cannot be writable: {why_not}", field=field,
            remedy="name the folder of the project",
        )  # fmt: skip


def _why_not_writable(path: str, uid: int, home: str) -> str | None:
    tree = system_tree(path)
    if tree is not None:
        return NEVER_WRITABLE[tree]
    if path in TOO_WIDE:
        return "it holds more than one project"
    if uid != 0:
        return None
    if within_any(path, _STATE) and not within_any(path, _SHARED_STATE):
        status = recording_fs.stat(path)
        # A socket is named to be connected to: nothing in it can be written.
        if status.st_uid == 0 and not stat.S_ISSOCK(status.st_mode):
            return "it belongs to the system"
    others = set(homes(home)) - {recording_fs.realpath(home), "/root"}
    owner = home_of(recording_fs.stat(path).st_uid)
    if owner is not None:
        others.add(recording_fs.realpath(owner))
    others -= {recording_fs.realpath(home)}
    return "it is the home folder of a user" if _holds_one(path, others) else None


def _holds_one(path: str, folders: Iterable[str]) -> bool:
    return any(within(folder, path) for folder in folders)


def system_tree(path: str) -> str | None:
    """The system's folder that `path` lies in."""
    if any(is_below(path, projects) for projects in _PROJECTS):
        return None
    return next((tree for tree in NEVER_WRITABLE if within(path, tree)), None)


def is_sealed(folder: str) -> bool:
    """Whether no sandbox can make anything in this folder, whatever a request says."""
    return folder in TOO_WIDE or system_tree(folder) is not None or folder in _HIDDEN
