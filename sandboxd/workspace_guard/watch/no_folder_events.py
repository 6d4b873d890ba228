"""Replaces `folder_events` on systems without inotify: only the sweep after the command checks.

On macOS the profile itself denies protected paths, also those that do not exist yet.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from sandboxd.policy.plan import Protected


@dataclass(slots=True)
class Touched:
    maybe: set[Protected] = field(default_factory=set)
    surely: set[Protected] = field(default_factory=set)
    below: list[tuple[Protected, str]] = field(default_factory=list)


class FolderEvents:
    """Never calm, so that every command is followed by a sweep."""

    calm = False
    read_all = True
    backlog = False

    def __init__(self, watched: list[Protected], roots: Mapping[str, int]) -> None:
        self._never, self._other = os.pipe()

    def fileno(self) -> int:
        """Never readable."""
        return self._never

    def settle(self) -> None:
        pass

    def watch_below(self, folder: int, one: Protected) -> int:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    def forget_below(self, one: Protected) -> None:
        pass

    def touched(self) -> Touched:
        return Touched()

    def close(self) -> None:
        os.close(self._never)
        os.close(self._other)
