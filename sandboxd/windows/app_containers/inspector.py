"""The facts of a suspended process, read from the system: what verification is decided by."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import c_uint32, c_wchar_p

from sandboxd.windows import api, tokens
from sandboxd.windows.job_objects.jobs import Job
from sandboxd.windows.processes import exits
from sandboxd.windows.processes.spawn import Suspended
from sandboxd.windows.structures import SID_AND_ATTRIBUTES

assert sys.platform == "win32"

_TOKEN_CAPABILITIES = 30


class LiveProcess:
    """A process that `spawn` made, with its job."""

    def __init__(self, made: Suspended, job: Job) -> None:
        self._made = made
        self._job = job

    @contextmanager
    def _token(self) -> Iterator[int]:
        token = tokens.process_token(self._made.process)
        try:
            yield token
        finally:
            api.close(token)

    def user(self) -> str:
        with self._token() as token:
            return tokens.user_of(token)

    def integrity(self) -> str:
        with self._token() as token:
            return tokens.integrity_of(token)

    def is_app_container(self) -> bool | None:
        with self._token() as token:
            return tokens.is_app_container(token)

    def package(self) -> str:
        with self._token() as token:
            return tokens.app_container_sid(token)

    def capabilities(self) -> frozenset[str] | None:
        with self._token() as token:
            return _capabilities(token)

    def in_job(self) -> bool:
        return self._job.holds_process(self._made.process) is True

    def limits_hold(self) -> bool:
        return self._job.holds_limits()

    def ui_limits_hold(self) -> bool:
        return self._job.holds_ui_limits()

    def resume(self) -> None:
        self._made.resume()

    def terminate(self) -> None:
        self._made.terminate(exits.KILLED)


def _capabilities(token: int) -> frozenset[str] | None:
    """None where the system does not say them."""
    size = c_uint32()
    api.GetTokenInformation(token, _TOKEN_CAPABILITIES, None, 0, ctypes.byref(size))
    if size.value < 4:
        return None
    buffer = ctypes.create_string_buffer(size.value)
    if not api.GetTokenInformation(
        token, _TOKEN_CAPABILITIES, buffer, size.value, ctypes.byref(size)
    ):
        return None
    count = c_uint32.from_buffer(buffer).value
    start = ctypes.alignment(SID_AND_ATTRIBUTES)  # the count is padded to a pointer
    groups = (SID_AND_ATTRIBUTES * count).from_buffer(buffer, start)
    found: set[str] = set()
    for group in groups:
        text = c_wchar_p()
        if not api.ConvertSidToStringSidW(group.Sid, ctypes.byref(text)):
            return None
        found.add(text.value or "")
        api.LocalFree(text)
    return frozenset(found)
