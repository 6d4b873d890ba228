"""The daemon's own files: read-only or masked under every manifest, whatever a caller allows.

A command that could change the daemon's code, config or socket folder would be outside the sandbox
at the next start.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Iterable
from dataclasses import dataclass

import sandboxd
import sandboxd_proto
from sandboxd.policy import hostfs


@dataclass(frozen=True, slots=True)
class OwnPaths:
    """`read_only`: code. `hidden`: socket, state and config. Canonical paths that exist."""

    read_only: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()

    @classmethod
    def current(cls, hidden: Iterable[str], programs: Iterable[str] = ()) -> OwnPaths:
        code = {
            os.path.dirname(sandboxd.__file__),
            os.path.dirname(sandboxd_proto.__file__),
            sys.prefix if sys.prefix != sys.base_prefix else sysconfig.get_path("stdlib"),
            sysconfig.get_path("stdlib"),
            sys.executable,
            *programs,
        }
        return cls(_canonical(code), _canonical(hidden))

    def inside(self, path: str) -> str | None:
        """The own path that `path` lies in, if any."""
        for own in (*self.hidden, *self.read_only):
            if path == own or path.startswith(own.rstrip("/") + "/"):
                return own
        return None

    def hides(self, path: str) -> str | None:
        for own in self.hidden:
            if path == own or path.startswith(own.rstrip("/") + "/"):
                return own
        return None


def _canonical(paths: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted({hostfs.realpath(p) for p in paths if p and hostfs.exists(p)}))
