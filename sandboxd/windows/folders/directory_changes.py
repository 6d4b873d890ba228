"""Tells what is made or renamed below a folder while it happens, by ReadDirectoryChangesW.

One read is outstanding at a time. The system keeps changes between two reads in a buffer; if that
overflows, it says so, and everything may have changed.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from ctypes import c_uint32

from sandboxd import event_loop
from sandboxd.platform.windows.loop import current_proactor
from sandboxd.windows import api
from sandboxd.windows.folders.change_records import records
from sandboxd.windows.structures import OVERLAPPED

assert sys.platform == "win32"

Changes = list[tuple[int, str]]
_LIST_DIRECTORY, _SHARE_ALL, _OPEN_EXISTING = 0x1, 0x7, 3
_BACKUP_SEMANTICS, _OVERLAPPED = 0x02000000, 0x40000000
_NAMES = 0x1 | 0x2  # FILE_NAME, DIR_NAME
_BUFFER = 64 * 1024


class DirectoryChanges:
    """`told` gets the changes; None when they are not known. After that `failed` may be set.

    Made on the event loop; `close` may be called in any thread.
    """

    def __init__(self, folder: str, told: Callable[[Changes | None], None]) -> None:
        self.failed: OSError | None = None
        self._told = told
        self._closed = False
        self._handle = api.check_handle(
            api.CreateFileW(
                folder, _LIST_DIRECTORY, _SHARE_ALL, None, _OPEN_EXISTING,
                _BACKUP_SEMANTICS | _OVERLAPPED, None,
            ),
            folder,
        )  # fmt: skip
        self._event = 0
        try:
            self._event = api.check_handle(api.CreateEventW(None, 1, 0, None), "an event")
            self._buffer = (c_uint32 * (_BUFFER // 4))()  # aligned, as the system wants it
            self._overlapped = OVERLAPPED(hEvent=self._event)
            self._read()
        except OSError:
            self._release()
            raise

    def _read(self) -> None:
        api.check(
            api.ReadDirectoryChangesW(
                self._handle, self._buffer, _BUFFER, 1, _NAMES, None,
                ctypes.byref(self._overlapped), None,
            ),
            "ReadDirectoryChangesW",
        )  # fmt: skip
        self._waiting = current_proactor().wait_for_handle(self._event)
        self._waiting.add_done_callback(self._arrived)

    def _arrived(self, waiting: event_loop.Future[bool]) -> None:
        if self._closed or waiting.cancelled():
            self._release()
            return
        changes: Changes | None = None
        try:
            changes = self._taken()
            api.ResetEvent(self._event)
            self._read()
        except OSError as error:
            self.failed = error
        except ValueError as error:
            self.failed = OSError(str(error))
        self._told(changes)

    def _taken(self) -> Changes | None:
        size = c_uint32()
        api.check(
            api.GetOverlappedResult(
                self._handle, ctypes.byref(self._overlapped), ctypes.byref(size), 0
            ),
            "ReadDirectoryChangesW",
        )
        return list(records(bytes(self._buffer)[: size.value])) if size.value else None

    def close(self) -> None:
        """The outstanding read ends, and its end lets go of the handles."""
        self._closed = True
        api.CancelIoEx(self._handle, None)

    def _release(self) -> None:
        handle, self._handle = self._handle, 0
        event, self._event = self._event, 0
        api.close(handle)
        api.close(event)
