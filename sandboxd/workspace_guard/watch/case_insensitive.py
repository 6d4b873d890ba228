"""Compare existing protected files on file systems that ignore case.

The kernel may hold one entry for each spelling (FUSE, 9p and others do): a mount on `.git/hooks`
then does not cover `.GIT/hooks`. Such file systems (exFAT, FAT) may also have no time of the last
change but the one that a command can set, so nothing is concluded from times. What was written by
one spelling shows by another one when the kernel's copy has expired: after CACHED_S.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Iterable

from sandboxd.policy.plan import Protected
from sandboxd.workspace_guard.dirfd import distrust, listable, open_planned, stat_at
from sandboxd.workspace_guard.protected_snapshot import ProtectedSnapshot

_MOST_NAMES = 100
CACHED_S = 1.1  # FUSE keeps names and sizes for a second


def open_snapshot(
    protected: Iterable[Protected], writable: Iterable[str]
) -> ProtectedSnapshot | None:
    """Of those that exist where case is ignored. `writable`: as for ProtectedSnapshot."""
    # Elsewhere the backend's rules cover every spelling.
    present = [one for one in protected if one.present] if sys.platform == "linux" else []
    roots = {one.root for one in present}
    ignoring = {root for root in roots if _ignores_case(root)}
    evadable = [one for one in present if one.root in ignoring]
    return ProtectedSnapshot(evadable, writable) if evadable else None


def _ignores_case(root: str) -> bool:
    """As seen by the first name in it that has another spelling."""
    folder = open_planned(root)
    try:
        fd = listable(folder)
        try:
            with os.scandir(fd) as entries:
                names = {entry.name for entry in itertools.islice(entries, _MOST_NAMES)}
        finally:
            os.close(fd)
        for name in names:
            other = name.swapcase()
            if other != name and other not in names:
                found = stat_at(folder, other) is not None
                if found:
                    distrust(os.fstat(folder).st_dev)
                return found
    except OSError:
        return False
    finally:
        os.close(folder)
    return False
