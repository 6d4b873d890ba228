"""The daemon's own files, which are read-only or masked under every manifest.

A command that could change the daemon's code, config or socket folder would be outside the sandbox
at the next start.
"""

from __future__ import annotations

import posixpath
import sys
import sysconfig
from collections.abc import Iterable
from dataclasses import dataclass

import sandboxd
import sandboxd_proto
from sandboxd.platform.current import files
from sandboxd.policy.paths import recording_fs
from sandboxd.policy.paths.within import within


@dataclass(frozen=True, slots=True)
class OwnPaths:
    """`read_only`: code. `hidden`: socket, state and config. Canonical paths that exist."""

    read_only: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()

    @classmethod
    def current(cls, hidden: Iterable[str], programs: Iterable[str] = ()) -> OwnPaths:
        code = {
            posixpath.dirname(sandboxd.__file__),
            posixpath.dirname(sandboxd_proto.__file__),
            sys.prefix if sys.prefix != sys.base_prefix else sysconfig.get_path("stdlib"),
            sysconfig.get_path("stdlib"),
            sys.executable,
            *programs,
        }
        return cls(_canonical(code), _canonical(hidden))

    def inside(self, path: str) -> str | None:
        """The own path that `path` lies in, if any."""
        own = (*self.hidden, *self.read_only)
        return next((one for one in own if within(path, one)), None)

    def hides(self, path: str) -> str | None:
        return next((one for one in self.hidden if within(path, one)), None)


def _canonical(paths: Iterable[str]) -> tuple[str, ...]:
    found = (files.internal(path) for path in paths if path)
    return tuple(sorted({recording_fs.realpath(p) for p in found if recording_fs.exists(p)}))
