"""Whether the config file is still the one that the daemon read when it started."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable

from sandboxd.config.config import ConfigError
from sandboxd.platform.regular_file import read_regular

_MOST_BYTES = 1 << 20  # a larger one is not read again

_Signature = tuple[int, int, int]


class ConfigFile:
    """Made before the file is read: a change while it is read counts as one after it.

    `check`: reads it as a new daemon would; ConfigError if that would not start.
    """

    def __init__(self, path: str, check: Callable[[], object] | None = None) -> None:
        self.path = path
        self._check = check
        self._same = self._changed = _signature(path)
        self._digest = _digest(path)
        self._mistake: str | None = None

    def warnings(self) -> list[str]:
        """For `initialize` and `status`. A signature that was not seen before costs a read."""
        now = _signature(self.path)
        if now == self._same:
            return []
        if now != self._changed:
            digest = _digest(self.path)
            if digest is not None and digest == self._digest:  # touched, or changed back
                self._same = now
                return []
            self._changed, self._mistake = now, self._found()
        changed = f"{self.path} changed after the daemon had read it"
        if self._mistake is None:
            return [f"{changed}; `sandboxctl restart` makes it take effect"]
        return [
            f"{changed}, and no daemon would start with it: {self._mistake}; correct that, then "
            "`sandboxctl restart` makes it take effect"
        ]

    def _found(self) -> str | None:
        if self._check is None or not _is_plain(self.path):
            return None
        try:
            self._check()
        except ConfigError as error:
            text = str(error).removeprefix(f"{self.path}: ")
            return (
                f"it {text.removeprefix(f'{self.path} ')}" if text.startswith(self.path) else text
            )
        return None


def _is_plain(path: str) -> bool:
    """Whether reading it takes no waiting; also where there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return True
    return stat.S_ISREG(found.st_mode) and found.st_size <= _MOST_BYTES


def _digest(path: str) -> bytes | None:
    """None where it is not read: there is none, it is large, or its owner keeps it closed."""
    if not _is_plain(path):
        return None
    try:
        return hashlib.sha256(read_regular(path, _MOST_BYTES)).digest()
    except OSError:
        return None


def _signature(path: str) -> _Signature | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
