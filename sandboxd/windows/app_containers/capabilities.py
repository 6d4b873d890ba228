"""The attribute that puts a process into an AppContainer with exactly these capabilities."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterable
from ctypes import c_void_p

from sandboxd.windows import api
from sandboxd.windows.structures import (
    SE_GROUP_ENABLED,
    SECURITY_CAPABILITIES,
    SID_AND_ATTRIBUTES,
)

assert sys.platform == "win32"


class SecurityCapabilities:
    """Owns the SIDs. `value` is valid until `close`, which comes after CreateProcess."""

    def __init__(self, package: str, capabilities: Iterable[str]) -> None:
        self._sids: list[c_void_p] = []
        try:
            own = self._sid(package)
            granted = [self._sid(text) for text in sorted(capabilities)]
        except OSError:
            self.close()
            raise
        self._groups = (SID_AND_ATTRIBUTES * max(len(granted), 1))()
        for group, sid in zip(self._groups, granted, strict=False):
            group.Sid, group.Attributes = sid, SE_GROUP_ENABLED
        address = ctypes.addressof(self._groups) if granted else None
        self.value = SECURITY_CAPABILITIES(own, address, len(granted), 0)

    def _sid(self, text: str) -> c_void_p:
        sid = c_void_p()
        api.check(api.ConvertStringSidToSidW(text, ctypes.byref(sid)), f"the SID {text}")
        self._sids.append(sid)
        return sid

    def close(self) -> None:
        while self._sids:
            api.LocalFree(self._sids.pop())
