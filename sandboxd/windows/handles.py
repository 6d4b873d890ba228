"""A handle that asyncio's proactor can use: it has `fileno`, is hashable and weakly referable."""

from __future__ import annotations

import sys

from sandboxd.windows import api

assert sys.platform == "win32"


class Handle:
    """Owns a Windows handle."""

    def __init__(self, value: int) -> None:
        self._value: int | None = value

    def fileno(self) -> int:
        if self._value is None:
            raise OSError("the handle is closed")
        return self._value

    @property
    def closed(self) -> bool:
        return self._value is None

    def close(self) -> None:
        value, self._value = self._value, None
        api.close(value)
