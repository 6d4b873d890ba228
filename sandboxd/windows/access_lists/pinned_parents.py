"""Pin a folder: open without FILE_SHARE_DELETE, it can be neither renamed nor removed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pywintypes
import win32api
import win32file

assert sys.platform == "win32"

_LIST, _SHARE_READ_WRITE = 0x1, 0x3
_NOT_FOLLOWED, _FOLDER = 0x00200000, 0x02000000  # OPEN_REPARSE_POINT, BACKUP_SEMANTICS
_REPARSE_POINT = 0x400


@contextmanager
def pinned(folder: str) -> Iterator[bool]:
    """Whether it is a link. It stays where it is as long as this lasts."""
    try:
        handle = win32file.CreateFile(
            folder, _LIST, _SHARE_READ_WRITE, None, win32file.OPEN_EXISTING,
            _NOT_FOLLOWED | _FOLDER, None,
        )  # fmt: skip
    except pywintypes.error as error:
        raise OSError(error.winerror, error.strerror, folder) from None
    try:
        yield bool(win32file.GetFileInformationByHandle(handle)[0] & _REPARSE_POINT)
    finally:
        win32api.CloseHandle(handle)
