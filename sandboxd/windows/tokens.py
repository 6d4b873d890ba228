"""Whose a process or thread is: user, integrity, AppContainer."""

from __future__ import annotations

import ctypes
import sys
from ctypes import c_uint32, c_void_p, c_wchar_p
from functools import lru_cache
from typing import Any

import pywintypes
import win32api
import win32security

from sandboxd.windows import api
from sandboxd.windows.structures import (
    TokenAppContainerSid,
    TokenIntegrityLevel,
    TokenIsAppContainer,
)

assert sys.platform == "win32"


@lru_cache(maxsize=1)
def current_user() -> str:
    """The SID of the daemon's user."""
    token = _own_token()  # closed when it is forgotten
    return user_of(int(token))


@lru_cache(maxsize=1)
def current_integrity() -> str:
    """The SID of the daemon's own integrity level."""
    token = _own_token()
    return integrity_of(int(token))


def _own_token() -> Any:
    return win32security.OpenProcessToken(win32api.GetCurrentProcess(), win32security.TOKEN_QUERY)


def user_of(token: int) -> str:
    found = win32security.GetTokenInformation(token, win32security.TokenUser)[0]
    return str(win32security.ConvertSidToStringSid(found))


def integrity_of(token: int) -> str:
    """The SID of the integrity level; empty where the system does not say it."""
    try:
        found = win32security.GetTokenInformation(token, TokenIntegrityLevel)[0]
        return str(win32security.ConvertSidToStringSid(found))
    except pywintypes.error:
        return ""


def is_app_container(token: int) -> bool | None:
    """None where the system does not say it."""
    value, size = c_uint32(), c_uint32()
    found = api.GetTokenInformation(
        token, TokenIsAppContainer, ctypes.byref(value), 4, ctypes.byref(size)
    )
    return bool(value.value) if found else None


def app_container_sid(token: int) -> str:
    """Empty where it has none, or the system does not say it."""
    size = c_uint32()
    buffer = ctypes.create_string_buffer(256)
    if not api.GetTokenInformation(
        token, TokenAppContainerSid, buffer, len(buffer), ctypes.byref(size)
    ):
        return ""
    sid = c_void_p.from_buffer(buffer).value
    text = c_wchar_p()
    if not sid or not api.ConvertSidToStringSidW(sid, ctypes.byref(text)):
        return ""
    try:
        return text.value or ""
    finally:
        api.LocalFree(text)


def process_token(process: int) -> int:
    """A handle that the caller closes."""
    token = win32security.OpenProcessToken(process, win32security.TOKEN_QUERY)
    return int(token.Detach())
