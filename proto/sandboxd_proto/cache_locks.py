"""Locks on the notes of package caches: a cache in use is not removed, by any daemon or client.

No command can open a note, so none can hold its lock. The kernel drops a lock when its holder ends.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

NOTES = ".workspaces"


def note_of(folder: str) -> str:
    """The file beside a cache that names its workspace."""
    return os.path.join(os.path.dirname(folder), NOTES, os.path.basename(folder))


if sys.platform == "win32":  # what is open there is not removed

    def hold(folder: str) -> int | None:
        return None

    @contextmanager
    def unused(folder: str) -> Iterator[bool]:
        yield True

else:
    import fcntl

    _NOTE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

    def hold(folder: str) -> int | None:
        """A descriptor that shows as long as it is open that the cache is in use. None where it has
        no note or cannot be locked; BlockingIOError while it is removed."""
        try:
            fd = os.open(note_of(folder), os.O_RDONLY | _NOTE)
        except OSError:
            return None
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            raise
        except OSError:
            os.close(fd)
            return None
        return fd

    @contextmanager
    def unused(folder: str) -> Iterator[bool]:
        """Whether nothing uses the cache; if so, nothing can until the end."""
        fd = -1
        try:
            fd = os.open(note_of(folder), os.O_RDWR | _NOTE)  # NFS locks only what is writable
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except FileNotFoundError:
            is_unused = True
        except OSError:
            is_unused = False
        else:
            is_unused = True
        try:
            yield is_unused
        finally:
            if fd >= 0:
                os.close(fd)
