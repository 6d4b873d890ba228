"""Calls of Windows that pywin32 lacks or that must not raise its own exceptions."""

from __future__ import annotations

import ctypes
import sys
from ctypes import c_int32, c_size_t, c_uint32, c_void_p, c_wchar_p
from typing import Any

assert sys.platform == "win32"

_kernel32 = ctypes.WinDLL("kernel32", use_last_error=True)
_advapi32 = ctypes.WinDLL("advapi32", use_last_error=True)
INVALID_HANDLE = c_void_p(-1).value
INFINITE = 0xFFFFFFFF


def _function(library: Any, name: str, result: Any, *arguments: Any) -> Any:
    found = getattr(library, name)
    found.restype = result
    found.argtypes = arguments
    return found


_B, _D, _P, _W, _H = c_int32, c_uint32, c_void_p, c_wchar_p, c_void_p
CreateJobObjectW = _function(_kernel32, "CreateJobObjectW", _H, _P, _W)
SetInformationJobObject = _function(_kernel32, "SetInformationJobObject", _B, _H, c_int32, _P, _D)
QueryInformationJobObject = _function(
    _kernel32, "QueryInformationJobObject", _B, _H, c_int32, _P, _D, _P
)
TerminateJobObject = _function(_kernel32, "TerminateJobObject", _B, _H, _D)
IsProcessInJob = _function(_kernel32, "IsProcessInJob", _B, _H, _H, _P)
InitializeProcThreadAttributeList = _function(
    _kernel32, "InitializeProcThreadAttributeList", _B, _P, _D, _D, _P
)
UpdateProcThreadAttribute = _function(
    _kernel32, "UpdateProcThreadAttribute", _B, _P, _D, c_size_t, _P, c_size_t, _P, _P
)
DeleteProcThreadAttributeList = _function(_kernel32, "DeleteProcThreadAttributeList", None, _P)
CreateProcessW = _function(_kernel32, "CreateProcessW", _B, _W, _P, _P, _P, _B, _D, _P, _W, _P, _P)
ResumeThread = _function(_kernel32, "ResumeThread", _D, _H)
TerminateProcess = _function(_kernel32, "TerminateProcess", _B, _H, _D)
OpenProcess = _function(_kernel32, "OpenProcess", _H, _D, _B, _D)
GetExitCodeProcess = _function(_kernel32, "GetExitCodeProcess", _B, _H, _P)
GetProcessTimes = _function(_kernel32, "GetProcessTimes", _B, _H, _P, _P, _P, _P)
GetCurrentProcess = _function(_kernel32, "GetCurrentProcess", _H)
DuplicateHandle = _function(_kernel32, "DuplicateHandle", _B, _H, _H, _H, _P, _D, _B, _D)
CloseHandle = _function(_kernel32, "CloseHandle", _B, _H)
CreateIoCompletionPort = _function(_kernel32, "CreateIoCompletionPort", _H, _H, _H, _P, _D)
GetQueuedCompletionStatus = _function(
    _kernel32, "GetQueuedCompletionStatus", _B, _H, _P, _P, _P, _D
)
PostQueuedCompletionStatus = _function(_kernel32, "PostQueuedCompletionStatus", _B, _H, _D, _P, _P)
CreateNamedPipeW = _function(_kernel32, "CreateNamedPipeW", _H, _W, _D, _D, _D, _D, _D, _D, _P)
CreateFileW = _function(_kernel32, "CreateFileW", _H, _W, _D, _D, _P, _D, _D, _H)
CreateEventW = _function(_kernel32, "CreateEventW", _H, _P, _B, _B, _W)
ResetEvent = _function(_kernel32, "ResetEvent", _B, _H)
CancelIoEx = _function(_kernel32, "CancelIoEx", _B, _H, _P)
GetOverlappedResult = _function(_kernel32, "GetOverlappedResult", _B, _H, _P, _P, _B)
ReadDirectoryChangesW = _function(
    _kernel32, "ReadDirectoryChangesW", _B, _H, _P, _D, _B, _D, _P, _P, _P
)
GetNamedPipeClientProcessId = _function(_kernel32, "GetNamedPipeClientProcessId", _B, _H, _P)
LocalFree = _function(_kernel32, "LocalFree", _P, _P)
ConvertStringSecurityDescriptor = _function(
    _advapi32, "ConvertStringSecurityDescriptorToSecurityDescriptorW", _B, _W, _D, _P, _P
)
ConvertStringSidToSidW = _function(_advapi32, "ConvertStringSidToSidW", _B, _W, _P)
ConvertSidToStringSidW = _function(_advapi32, "ConvertSidToStringSidW", _B, _P, _P)
GetTokenInformation = _function(_advapi32, "GetTokenInformation", _B, _H, c_int32, _P, _D, _P)


def check(result: Any, what: str) -> Any:
    """The result; OSError with the system's error where it is false."""
    if not result:
        raise last_error(what)
    return result


def check_handle(result: Any, what: str) -> int:
    if result is None or result == INVALID_HANDLE:
        raise last_error(what)
    return int(result)


def last_error(what: str) -> OSError:
    error = ctypes.WinError(ctypes.get_last_error())
    return OSError(error.errno, error.strerror, what, error.winerror)


def close(handle: int | None) -> None:
    if handle:
        CloseHandle(handle)
