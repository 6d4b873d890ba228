"""The attribute list of a process that is made: its handles, its job, its AppContainer."""

from __future__ import annotations

import ctypes
import sys
from ctypes import c_size_t, c_void_p
from typing import Any

from sandboxd.windows import api

assert sys.platform == "win32"


class AttributeList:
    """Holds only pointers: every value is kept referenced until `close`."""

    def __init__(self, count: int) -> None:
        size = c_size_t()
        # Fails by design, and says how large it has to be.
        api.InitializeProcThreadAttributeList(None, count, 0, ctypes.byref(size))
        self._buffer = ctypes.create_string_buffer(size.value)
        self._values: list[Any] = []
        api.check(
            api.InitializeProcThreadAttributeList(self._buffer, count, 0, ctypes.byref(size)),
            "InitializeProcThreadAttributeList",
        )

    @property
    def address(self) -> int:
        return ctypes.addressof(self._buffer)

    def add(self, attribute: int, value: Any) -> None:
        self._values.append(value)
        self._update(attribute, ctypes.addressof(value), ctypes.sizeof(value))

    def add_handle(self, attribute: int, handle: int) -> None:
        """An attribute whose value is the handle itself, not a pointer to it."""
        self._update(attribute, handle, ctypes.sizeof(c_void_p))

    def _update(self, attribute: int, address: int, size: int) -> None:
        api.check(
            api.UpdateProcThreadAttribute(self._buffer, 0, attribute, address, size, None, None),
            f"UpdateProcThreadAttribute({attribute:#x})",
        )

    def close(self) -> None:
        api.DeleteProcThreadAttributeList(self._buffer)
        self._values.clear()
