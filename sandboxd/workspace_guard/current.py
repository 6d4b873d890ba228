"""Which watch for protected paths this platform has."""

from __future__ import annotations

import sys
from collections.abc import Collection

from sandboxd.policy.plan import Protected
from sandboxd.workspace_guard.interface import Watch

if sys.platform == "win32":
    from sandboxd.workspace_guard.directory_watch import DirectoryWatch

    def open_watch(protected: Collection[Protected], writable: Collection[str]) -> Watch:
        return DirectoryWatch(tuple(protected))
else:
    from sandboxd.workspace_guard.absent_paths_watch import AbsentPathsWatch

    def open_watch(protected: Collection[Protected], writable: Collection[str]) -> Watch:
        """`writable`: all folders that may be written, also those inside of protected ones."""
        return AbsentPathsWatch(tuple(protected), tuple(writable))
