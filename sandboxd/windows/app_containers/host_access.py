"""The access lists of the drive's root and of the device NUL, as they are now."""

from __future__ import annotations

import os
import sys
from typing import Any

import pywintypes
import win32api
import win32file
import win32security

from sandboxd.windows.app_containers.preparation import Ace, Missing, missing

assert sys.platform == "win32"

NUL = "\\\\.\\NUL"
_READ_CONTROL, _SHARE_ALL = 0x20000, 0x7
_ALLOW, _INHERIT_ONLY = 0, 0x8
_DACL = win32security.DACL_SECURITY_INFORMATION


def missing_preparation() -> list[Missing]:
    root = os.environ.get("SYSTEMDRIVE", "C:") + "\\"
    return missing(root, _root_aces(root), _nul_aces())


def open_nul(access: int) -> Any:
    return win32file.CreateFile(NUL, access, _SHARE_ALL, None, win32file.OPEN_EXISTING, 0, None)


def nul_dacl(handle: Any) -> Any:
    found = win32security.GetSecurityInfo(handle, win32security.SE_FILE_OBJECT, _DACL)
    return found.GetSecurityDescriptorDacl()


def _root_aces(root: str) -> list[Ace] | None:
    try:
        found = win32security.GetNamedSecurityInfo(root, win32security.SE_FILE_OBJECT, _DACL)
        return _aces(found.GetSecurityDescriptorDacl())
    except pywintypes.error:
        return None


def _nul_aces() -> list[Ace] | None:
    try:
        handle = open_nul(_READ_CONTROL)
        try:
            return _aces(nul_dacl(handle))
        finally:
            win32api.CloseHandle(handle)
    except pywintypes.error:
        return None


def _aces(dacl: Any) -> list[Ace] | None:
    if dacl is None:
        return None
    found: list[Ace] = []
    for index in range(dacl.GetAceCount()):
        (kind, flags), mask, sid = dacl.GetAce(index)[:3]
        text = str(win32security.ConvertSidToStringSid(sid))
        found.append(Ace(kind == _ALLOW, text, mask & 0xFFFFFFFF, bool(flags & _INHERIT_ONLY)))
    return found
