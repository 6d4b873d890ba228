"""Keep a plan's package caches from being removed while its commands run."""

from __future__ import annotations

import os

from sandboxd.platform.current import files
from sandboxd.policy.plan import Grant, Identity, SandboxSpec
from sandboxd.types import PathChanged
from sandboxd_proto import cache_locks


class CacheLocks:
    """`take` before a command and `release` after it: a guard that is kept locks nothing."""

    def __init__(self, spec: SandboxSpec | None) -> None:
        grants = spec.grants if spec is not None else ()
        self._caches = [one for one in grants if one.origin == "cache"]
        self._held: list[int] = []

    def take(self) -> None:
        """PathChanged if one was removed since the plan was made, or is being removed."""
        try:
            for one in self._caches:
                self._lock(one)
        except BaseException:
            self.release()
            raise

    def _lock(self, cache: Grant) -> None:
        try:
            fd = cache_locks.hold(files.native(cache.path))
            if fd is not None:
                self._held.append(fd)
            is_there = Identity.of(files.lstat(cache.path)) == cache.identity
        except OSError:
            is_there = False
        if not is_there:
            raise PathChanged(
                f"{cache.path} is being removed, or was replaced",
                field="manifest",
                remedy="send the request again",
            )

    def release(self) -> None:
        while self._held:
            os.close(self._held.pop())
