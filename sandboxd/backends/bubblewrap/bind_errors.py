"""Errors of bwrap about a path that it could not bind, with the name that the caller used.

A daemon of root opens what it binds and hands bwrap descriptors. bwrap, which runs as the
workspace's owner by then, turns each back into a name, and may not be allowed to walk there.
"""

from __future__ import annotations

import errno
import os
import pwd
import re
import shlex
from collections.abc import Iterator, Mapping

from sandboxd.backends.bubblewrap.arguments import Bind
from sandboxd.linux.openat import changed_error
from sandboxd.policy.plan import RunAs
from sandboxd_proto.account_names import in_sentence
from sandboxd_proto.errors import PathDenied, SandboxdError, SandboxUnavailable

_SAID = re.compile(r"^bwrap: Can't (?:find source path|get type of source) (.+): ([^:]+)$", re.M)
_OPEN = "/srv"  # a folder of the system that every user can pass, for data of the machine
_FIRST_PERSON = 1000  # smaller ids belong to services
_DENIED, _GONE = os.strerror(errno.EACCES), os.strerror(errno.ENOENT)


def unreachable(
    said: str, sources: Mapping[str, Bind], run_as: RunAs | None
) -> SandboxdError | None:
    """The refusal that bwrap's words stand for; None when they are about something else.

    `sources`: what was to be bound, by the names that bwrap was given.
    """
    match = _SAID.search(said)
    bind = _meant(match[1], sources) if match else None
    if match is None or bind is None:
        return None
    path, reason = bind.source, match[2]
    # The daemon's own files are the ones that are mounted elsewhere than where they lie.
    own = bind.source != bind.dest
    if reason == _DENIED and run_as is not None:
        return _closed_to(run_as, path, own=own)
    if own:
        return SandboxUnavailable(
            f"the daemon's own {path} cannot be mounted: {reason}",
            remedy="restart sandboxd: it makes its files anew",
        )
    return changed_error(path, "it is gone" if reason == _GONE else reason)


def _meant(name: str, sources: Mapping[str, Bind]) -> Bind | None:
    """Once resolved, bwrap speaks of the path itself instead of the descriptor."""
    return sources.get(name) or next((b for b in sources.values() if b.source == name), None)


def _closed_to(run_as: RunAs, path: str, *, own: bool) -> SandboxdError:
    who = _user(run_as.uid)
    closed = _closed_folder(path, run_as)
    cause = f": {closed} does not let them through" if closed else ""
    opening = f"let {who} pass: chmod o+x {shlex.quote(closed or os.path.dirname(path))}"
    is_home = _is_home(closed or os.path.dirname(path))
    if own:
        return SandboxUnavailable(
            f"{who}, whom the command would run as, cannot reach the daemon's own {path}{cause}",
            remedy="keep the daemon's files outside of home folders" if is_home else opening,
        )
    return PathDenied(
        f"{path} cannot be reached by {who}, whom the command would run as "
        f"(sandboxd is root and the workspace is theirs){cause}",
        field="manifest",
        remedy=f"copy it outside to a place that {who} can reach, for example a new folder in "
        f"{_OPEN}: a home folder stays closed"
        if is_home
        else f"use a path that {who} can reach, or {opening}",
    )


def _is_home(folder: str) -> bool:
    """Whose owner decides who passes; root's holds keys of the machine."""
    people = (one for one in pwd.getpwall() if one.pw_uid == 0 or one.pw_uid >= _FIRST_PERSON)
    homes = {os.path.realpath(one.pw_dir) for one in people} - {"/"}
    return folder in homes or os.path.dirname(folder) == "/home"


def _user(uid: int) -> str:
    try:
        return in_sentence(pwd.getpwuid(uid).pw_name)
    except KeyError:
        return f"uid {uid}"


def _closed_folder(path: str, run_as: RunAs) -> str | None:
    """The first folder on the way that its mode closes to this user. Access lists are not read."""
    groups = _groups(run_as)
    for folder in _above(path):
        try:
            status = os.stat(folder)
        except OSError:
            return None
        bit = 0o001
        if status.st_uid == run_as.uid:
            bit = 0o100
        elif status.st_gid in groups:
            bit = 0o010
        if not status.st_mode & bit:
            return folder
    return None


def _groups(run_as: RunAs) -> set[int]:
    try:
        return set(os.getgrouplist(pwd.getpwuid(run_as.uid).pw_name, run_as.gid))
    except KeyError:
        return {run_as.gid}


def _above(path: str) -> Iterator[str]:
    at = "/"
    for part in path.strip("/").split("/"):
        yield at
        at = os.path.join(at, part)
