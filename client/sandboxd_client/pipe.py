"""A connection over a named pipe of Windows, with the methods of a socket that clients use.

Overlapped: a synchronous handle would let a thread that reads block the one that writes. Without
pywin32, so that a client needs nothing but Python. The server may learn who we are, and no more.
"""

from __future__ import annotations

import _winapi
import ctypes
import sys
import time
from ctypes import c_uint32, c_void_p, c_wchar_p

assert sys.platform == "win32"

CONNECT_TIMEOUT_S = 10.0
_LOCAL = "\\\\.\\pipe\\"
_BUSY = 231  # ERROR_PIPE_BUSY: every waiting instance was just taken
_PENDING = 997
_INFINITE = 0xFFFFFFFF
_SQOS_IDENTIFICATION = 0x100000 | 0x10000
_BROKEN = (109, 232, 233, 995)  # broken pipe, no data, not connected, cancelled
_PIECE = 256 * 1024
_SE_KERNEL_OBJECT, _OWNER, _LABEL = 6, 0x1, 0x10
_TOKEN_QUERY, _TOKEN_USER = 0x8, 1
_MANDATORY_LABEL_ACE = 0x11
MEDIUM = 0x2000


class PipeSocket:
    """`sendall`, `recv`, `shutdown` and `close` of a socket; `poll` for what select does.

    A read that Ctrl-C interrupted stays outstanding: what it takes is the next `recv`'s.
    """

    def __init__(self, handle: int) -> None:
        self._handle: int | None = handle
        self._reading: _winapi.Overlapped | None = None
        self._pending = False

    def fileno(self) -> int:
        if self._handle is None:
            raise OSError("the connection is closed")
        return self._handle

    def sendall(self, data: bytes | bytearray | memoryview) -> None:
        view = memoryview(bytes(data))
        while view:
            writing, _ = _winapi.WriteFile(self.fileno(), view, overlapped=True)
            done, _ = writing.GetOverlappedResult(True)  # Ctrl-C must not cut a frame off
            view = view[done:]

    def recv(self, size: int) -> bytes:
        """At most `size` bytes, or what a `poll` before has read already."""
        try:
            reading = self._outstanding(size)
            self._wait(reading, _INFINITE)
            self._reading = None
            done, _ = reading.GetOverlappedResult(True)
        except OSError as error:
            if error.winerror in _BROKEN:
                return b""
            raise
        buffer = reading.getbuffer()
        return bytes(buffer[:done]) if buffer is not None else b""

    def poll(self, timeout_s: float | None) -> bool:
        """Whether `recv` would answer at once. The end of the stream counts too."""
        try:
            reading = self._outstanding(_PIECE)
        except OSError as error:
            if error.winerror in _BROKEN:
                return True
            raise
        limit = _INFINITE if timeout_s is None else max(0, int(timeout_s * 1000))
        return self._wait(reading, limit)

    def _outstanding(self, size: int) -> _winapi.Overlapped:
        if self._reading is None:
            self._reading, error = _winapi.ReadFile(self.fileno(), size, overlapped=True)
            self._pending = error == _PENDING
        return self._reading

    def _wait(self, reading: _winapi.Overlapped, limit_ms: int) -> bool:
        """InterruptedError at Ctrl-C, in the main thread; the read stays outstanding."""
        if self._pending:
            found = _winapi.WaitForMultipleObjects([reading.event], False, limit_ms)
            self._pending = found == _winapi.WAIT_TIMEOUT
        return not self._pending

    def shutdown(self, how: int) -> None:
        """Wakes a thread that reads or writes."""
        if self._handle is not None:
            _kernel32.CancelIoEx(c_void_p(self._handle), None)

    def close(self) -> None:
        handle, self._handle = self._handle, None
        if handle is not None:
            _kernel32.CancelIoEx(c_void_p(handle), None)
            _winapi.CloseHandle(handle)


def open_pipe(path: str) -> PipeSocket:
    """OSError if no daemon serves it. Only a pipe of this machine is opened."""
    if not path.lower().startswith(_LOCAL) or "\\" in path[len(_LOCAL) :]:
        raise FileNotFoundError(2, f"{path} is no pipe of this machine: give {_LOCAL}NAME", path)
    deadline = time.monotonic() + CONNECT_TIMEOUT_S
    access = _winapi.GENERIC_READ | _winapi.GENERIC_WRITE
    flags = _winapi.FILE_FLAG_OVERLAPPED | _SQOS_IDENTIFICATION
    while True:
        try:
            handle = _winapi.CreateFile(path, access, 0, 0, _winapi.OPEN_EXISTING, flags, 0)
            return PipeSocket(handle)
        except OSError as error:
            if error.winerror != _BUSY or time.monotonic() > deadline:
                raise
        try:
            _winapi.WaitNamedPipe(path, 500)
        except OSError:
            time.sleep(0.005)


def owner_of(pipe: PipeSocket) -> str:
    """The SID of the user who made the pipe."""
    owner, descriptor = c_void_p(), c_void_p()
    error = _advapi32.GetSecurityInfo(
        c_void_p(pipe.fileno()), _SE_KERNEL_OBJECT, _OWNER, ctypes.byref(owner), None, None, None,
        ctypes.byref(descriptor),
    )  # fmt: skip
    if error:
        raise ctypes.WinError(error)
    try:
        return _text(owner)
    finally:
        _kernel32.LocalFree(descriptor)


def label_of(pipe: PipeSocket) -> int:
    """The integrity level that made the pipe; Medium where it has no label, as Windows reads it.

    The owner is the user also where a process of low integrity made it.
    """
    sacl, descriptor = c_void_p(), c_void_p()
    error = _advapi32.GetSecurityInfo(
        c_void_p(pipe.fileno()), _SE_KERNEL_OBJECT, _LABEL, None, None, None, ctypes.byref(sacl),
        ctypes.byref(descriptor),
    )  # fmt: skip
    if error:
        raise ctypes.WinError(error)
    try:
        ace = c_void_p()
        if not sacl or not _advapi32.GetAce(sacl, 0, ctypes.byref(ace)):
            return MEDIUM
        assert ace.value is not None
        if ctypes.c_uint8.from_address(ace.value).value != _MANDATORY_LABEL_ACE:
            return MEDIUM
        return int(_text(c_void_p(ace.value + 8)).rpartition("-")[2])
    finally:
        _kernel32.LocalFree(descriptor)


def own_sid() -> str:
    token = c_void_p()
    if not _advapi32.OpenProcessToken(
        c_void_p(_kernel32.GetCurrentProcess()), _TOKEN_QUERY, ctypes.byref(token)
    ):
        raise ctypes.WinError(ctypes.get_last_error())
    try:
        buffer, size = ctypes.create_string_buffer(256), c_uint32()
        if not _advapi32.GetTokenInformation(
            token, _TOKEN_USER, buffer, len(buffer), ctypes.byref(size)
        ):
            raise ctypes.WinError(ctypes.get_last_error())
        return _text(c_void_p.from_buffer(buffer))
    finally:
        _kernel32.CloseHandle(token)


def _text(sid: c_void_p) -> str:
    text = c_wchar_p()
    if not _advapi32.ConvertSidToStringSidW(sid, ctypes.byref(text)):
        raise ctypes.WinError(ctypes.get_last_error())
    try:
        return text.value or ""
    finally:
        _kernel32.LocalFree(text)


_kernel32 = ctypes.WinDLL("kernel32", use_last_error=True)
_advapi32 = ctypes.WinDLL("advapi32", use_last_error=True)
_kernel32.GetCurrentProcess.restype = c_void_p
_kernel32.LocalFree.argtypes = (c_void_p,)
