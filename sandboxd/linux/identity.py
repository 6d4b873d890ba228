"""Who a command is when the daemon is root: the workspace's owner, or root without capabilities."""

from __future__ import annotations

import os
import pwd
import shutil

from sandboxd.policy.plan import RunAs

_NOT_INHERITED = ["--inh-caps", "-all", "--ambient-caps", "-all", "--no-new-privs", "--"]


def dropped(run_as: RunAs | None) -> list[str]:
    """The words before a command that is started without bwrap. Nothing for an ordinary user.

    Root without capabilities owns the files of uid 0 and nothing more; an empty bounding set keeps
    it so across every exec. Another user has none to keep, and with an empty set the kernel would
    refuse to execute what has file capabilities (ping) instead of ignoring them.
    """
    if os.getuid() != 0:
        return []
    setpriv = shutil.which("setpriv") or "/usr/bin/setpriv"
    if run_as is None:
        bits = ["--securebits", "+noroot,+noroot_locked,+no_setuid_fixup,+no_setuid_fixup_locked"]
        return [setpriv, "--bounding-set", "-all", *bits, *_NOT_INHERITED]
    ids = ["--reuid", str(run_as.uid), "--regid", str(run_as.gid), _groups(run_as.uid)]
    return [setpriv, *ids, *_NOT_INHERITED]


def _groups(uid: int) -> str:
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return "--clear-groups"
    return "--init-groups"
