"""Who a command is when the daemon is root: the workspace's owner, or root without capabilities."""

from __future__ import annotations

import os
import pwd
import shutil

from sandboxd.policy.plan import RunAs

_NO_CAPABILITIES = ["--inh-caps", "-all", "--ambient-caps", "-all", "--bounding-set", "-all"]


def dropped(run_as: RunAs | None) -> list[str]:
    """The words before a command that is started without bwrap. Nothing for an ordinary user.

    Root without capabilities owns the files of uid 0 and nothing more. The bounding set keeps it so
    across every exec; noroot keeps setuid programs and file capabilities from mattering.
    """
    if os.getuid() != 0:
        return []
    setpriv = shutil.which("setpriv") or "/usr/bin/setpriv"
    if run_as is None:
        bits = ["--securebits", "+noroot,+noroot_locked,+no_setuid_fixup,+no_setuid_fixup_locked"]
        return [setpriv, *_NO_CAPABILITIES, *bits, "--no-new-privs", "--"]
    ids = ["--reuid", str(run_as.uid), "--regid", str(run_as.gid), _groups(run_as.uid)]
    return [setpriv, *ids, *_NO_CAPABILITIES, "--no-new-privs", "--"]


def _groups(uid: int) -> str:
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return "--clear-groups"
    return "--init-groups"
