"""A named mutex: it is free again when its holder ends, however it ends."""

from __future__ import annotations

import sys

import pywintypes
import win32api
import win32event

assert sys.platform == "win32"

_ABANDONED = 0x80


class NamedMutex:
    """`name` begins with Local\\ (of the session) or Global\\. OSError: it is another user's.

    The thread that acquires it closes it.
    """

    def __init__(self, name: str) -> None:
        try:
            self._handle = win32event.CreateMutex(None, False, name)
        except pywintypes.error as error:
            raise OSError(error.winerror, error.strerror, name) from None
        self._held = False

    def acquire(self, *, wait_s: float) -> bool:
        found = win32event.WaitForSingleObject(self._handle, int(wait_s * 1000))
        self._held = found in (win32event.WAIT_OBJECT_0, _ABANDONED)
        return self._held

    def close(self) -> None:
        if self._held:
            win32event.ReleaseMutex(self._handle)
            self._held = False
        win32api.CloseHandle(self._handle)
