"""The user of a command of a root daemon: the workspace's owner, or root without capabilities."""

from __future__ import annotations

import os
import pwd
import shutil

from sandboxd.policy.plan import RunAs

_NOT_INHERITED = ["--inh-caps", "-all", "--ambient-caps", "-all", "--no-new-privs", "--"]


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


def account_stamp(run_as: RunAs | None) -> tuple[tuple[int, int, int], ...]:
    """Changes with the accounts of this machine. A process keeps the groups it was started with.

    Only for a daemon of root: commands of any other one have the daemon's own groups.
    """
    if run_as is None:
        return ()
    return tuple(_stamp(path) for path in ("/etc/passwd", "/etc/group"))


def _stamp(path: str) -> tuple[int, int, int]:
    try:
        found = os.stat(path)
    except OSError:
        return (0, 0, 0)
    return found.st_dev, found.st_ino, found.st_ctime_ns


def _groups(uid: int) -> str:
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return "--clear-groups"
    return "--init-groups"
