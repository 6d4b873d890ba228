"""The user of a command of a root daemon: the workspace's owner, or root without capabilities."""

from __future__ import annotations

import os
import pwd
import shutil
from functools import partial

from sandboxd.concurrency.cached_fact import CachedFact
from sandboxd.linux.file_stamp import file_stamp
from sandboxd.policy.plan import RunAs

_NOT_INHERITED = ["--inh-caps", "-all", "--ambient-caps", "-all", "--no-new-privs", "--"]
_ACCOUNTS = ("/etc/passwd", "/etc/group", "/etc/nsswitch.conf")
MOST_KNOWN = 256
_known: dict[RunAs, CachedFact[tuple[int, ...]]] = {}


def drop_privileges(run_as: RunAs | None) -> list[str]:
    """The setpriv arguments for a command that starts without bwrap. Empty for an ordinary user.

    Root without capabilities still owns the files of uid 0; an empty bounding set keeps it without
    capabilities across every exec. Other users have none. With an empty set the kernel would refuse
    to execute programs with file capabilities (ping) instead of ignoring them.
    """
    if os.getuid() != 0:
        return []
    setpriv = shutil.which("setpriv") or "/usr/bin/setpriv"
    if run_as is None:
        bits = ["--securebits", "+noroot,+noroot_locked,+no_setuid_fixup,+no_setuid_fixup_locked"]
        return [setpriv, "--bounding-set", "-all", *bits, *_NOT_INHERITED]
    ids = ["--reuid", str(run_as.uid), "--regid", str(run_as.gid), _groups(run_as.uid)]
    return [setpriv, *ids, *_NOT_INHERITED]


async def look_up_groups(run_as: RunAs | None) -> None:
    """Before `account_stamp`: a directory service may take its time to answer."""
    if run_as is not None:
        await _groups_of(run_as).fresh()


def account_stamp(run_as: RunAs | None) -> object:
    """Changes with the accounts of this machine. A process keeps the groups it was started with.

    Only for a daemon of root: commands of any other one have the daemon's own groups.
    """
    if run_as is None:
        return None
    return *(file_stamp(path) for path in _ACCOUNTS), _groups_of(run_as).known()


def _groups_of(run_as: RunAs) -> CachedFact[tuple[int, ...]]:
    if len(_known) >= MOST_KNOWN and run_as not in _known:
        _known.clear()
    return _known.setdefault(run_as, CachedFact(partial(_find_groups, run_as)))


def _find_groups(run_as: RunAs) -> tuple[int, ...]:
    """As setpriv finds them."""
    try:
        return tuple(sorted(os.getgrouplist(pwd.getpwuid(run_as.uid).pw_name, run_as.gid)))
    except KeyError:
        return ()


def _groups(uid: int) -> str:
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return "--clear-groups"
    return "--init-groups"
