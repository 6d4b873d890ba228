"""Which watch for protected paths this platform has."""

from __future__ import annotations

import sys
from collections.abc import Collection

from sandboxd.policy.plan import Protected
from sandboxd.workspace_guard.interface import Watch

if sys.platform == "win32":
    from sandboxd.workspace_guard.directory_watch import DirectoryWatch as SystemWatch
else:
    from sandboxd.workspace_guard.absent_paths_watch import AbsentPathsWatch as SystemWatch


def open_watch(protected: Collection[Protected]) -> Watch:
    return SystemWatch(tuple(protected))
