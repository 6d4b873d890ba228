"""The daemon's own files, which are read-only or masked under every manifest.

A command that could change the daemon's code, config or socket folder would be outside the sandbox
at the next start.
"""

from __future__ import annotations

import os
import posixpath
import sys
import sysconfig
from collections.abc import Iterable

import msgspec

import sandboxd
import sandboxd_proto
from sandboxd.platform.current import files
from sandboxd.policy.paths import recording_fs
from sandboxd.policy.paths.symlink_walk import Walk
from sandboxd.policy.paths.within import within


class OwnPaths(msgspec.Struct, frozen=True):
    """`read_only`: code. `hidden`: socket, state and config. Canonical paths.

    What does not exist cannot be masked. Code that does not exist is left out; a hidden path stays:
    it is masked in every plan that is made when it exists, and until then no command may write in a
    folder above it. `links`: the symlinks through which the daemon finds what is hidden. A mount
    cannot keep a link, so no command may write in a folder above one either.
    """

    read_only: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    links: tuple[str, ...] = ()

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
        existing = [path for path in code if path and recording_fs.exists(files.internal(path))]
        named = [files.internal(os.path.abspath(path)) for path in hidden if path]
        links = {link for path in named for link in _links(path)}
        return cls(_canonical(existing), _canonical(named), tuple(sorted(links)))

    def inside(self, path: str) -> str | None:
        """The own path that `path` lies in, if any."""
        own = (*self.hidden, *self.read_only)
        return next((one for one in own if within(path, one)), None)

    def hides(self, path: str) -> str | None:
        return next((one for one in self.hidden if within(path, one)), None)

    def missing_in(self, folder: str) -> list[str]:
        """The hidden paths in `folder` that do not exist."""
        return [one for one in self.hidden if within(one, folder) and not recording_fs.lexists(one)]

    def link_in(self, folder: str) -> str | None:
        return next((link for link in self.links if within(link, folder)), None)


def _links(path: str) -> list[str]:
    way = Walk(path, lambda at: recording_fs.readlink(at) if recording_fs.islink(at) else None)
    return [step.path for step in way if step.target is not None]


def _canonical(paths: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted({recording_fs.realpath(files.internal(path)) for path in paths if path}))
