"""AppContainer profiles: made for a sandbox, deleted with it. The only calls into userenv.dll."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from ctypes import c_int32, c_uint32, c_void_p, c_wchar_p
from typing import cast

from sandboxd.windows import api
from sandboxd.windows.app_containers.packages import package_sid

assert sys.platform == "win32"

_EXISTS = 0x800700B7


class ProfileError(Exception):
    """No AppContainer can be made here; the message says why."""


def create_profile(name: str) -> str:
    """The package's SID, which is the one that its name gives. Announce it in the journal first."""
    create = _function("CreateAppContainerProfile", c_wchar_p, c_wchar_p, c_wchar_p, c_void_p,
                       c_uint32, c_void_p)  # fmt: skip
    sid = c_void_p()
    found = create(name, name, "a sandbox of sandboxd", None, 0, ctypes.byref(sid)) & 0xFFFFFFFF
    if found == _EXISTS:
        derive = _function("DeriveAppContainerSidFromAppContainerName", c_wchar_p, c_void_p)
        found = derive(name, ctypes.byref(sid)) & 0xFFFFFFFF
    if found != 0 or not sid.value:
        raise ProfileError(f"Windows makes no AppContainer (error {found:#010x})")
    try:
        text = _text(sid)
    finally:
        ctypes.WinDLL("advapi32").FreeSid(sid)
    if text != package_sid(name):
        raise ProfileError(f"the AppContainer {name} has the SID {text}, which is not its own")
    return text


def delete_profile(name: str) -> None:
    """OSError where it is still there. A system without AppContainers has none to delete."""
    try:
        delete = _function("DeleteAppContainerProfile", c_wchar_p)
    except ProfileError:
        return
    found = delete(name) & 0xFFFFFFFF
    if found != 0:
        raise OSError(f"the AppContainer {name} could not be deleted (error {found:#010x})")


def _text(sid: c_void_p) -> str:
    text = c_wchar_p()
    api.check(api.ConvertSidToStringSidW(sid, ctypes.byref(text)), "a package's SID")
    try:
        return text.value or ""
    finally:
        api.LocalFree(text)


def _function(name: str, *arguments: object) -> Callable[..., int]:
    try:
        found = getattr(ctypes.WinDLL("userenv"), name)
    except (AttributeError, OSError):
        raise ProfileError(f"this Windows has no AppContainer ({name} is missing)") from None
    found.restype = c_int32
    found.argtypes = arguments
    return cast(Callable[..., int], found)
