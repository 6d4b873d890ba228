"""What changes when a file or folder is replaced, written, or given other permissions."""

from __future__ import annotations

import os

FileStamp = tuple[int, int, int]


def file_stamp(path: str) -> FileStamp:
    """The ctime: unlike the mtime, nobody can set it back. Zeros where there is nothing."""
    try:
        found = os.stat(path)
    except OSError:
        return (0, 0, 0)
    return found.st_dev, found.st_ino, found.st_ctime_ns
