"""Error texts of macOS and Windows, where Linux prints strerror, by sign name.

On macOS a refusal by sandbox-exec is EPERM, not EACCES; the profile's own log lines name the
operation. On Windows AppContainer and the restricted token answer ERROR_ACCESS_DENIED, and a
missing capability for the network is WSAEACCES.
"""

from __future__ import annotations

import re

DARWIN: dict[str, tuple[str, ...]] = {
    "EPERM": ("sandbox-exec: execvp() of", "deny(1) ", "deny file-", "deny network-"),
    "lookup": ("nodename nor servname provided, or not known",),
    "unreachable": ("The Internet connection appears to be offline",),
}

WINDOWS: dict[str, tuple[str, ...]] = {
    "EACCES": (
        "Access is denied",
        "STATUS_ACCESS_DENIED",
        "ERROR_ACCESS_DENIED",
        "0xC0000022",
        "UnauthorizedAccessException",
        "ERROR_PRIVILEGE_NOT_HELD",
        "A required privilege is not held by the client",
        "ERROR_ACCESS_DISABLED_BY_POLICY",
        "This program is blocked by group policy",
        "PermissionDenied",
        "integrity level",
    ),
    "ENOENT": (
        "The system cannot find the file specified",
        "The system cannot find the path specified",
        "Could not find a part of the path",
    ),
    "EROFS": ("The media is write protected",),
    "lookup": (
        "No such host is known",
        "The remote name could not be resolved",
        "getaddrinfo failed",
    ),
    "unreachable": (
        "A socket operation was attempted to an unreachable network",
        "An attempt was made to access a socket in a way forbidden by its access permissions",
        "WSAEACCES",
        "WinError 10013",
    ),
    "memory": ("Not enough memory resources are available", "0xC0000017", "paging file is too"),
    "processes": ("Not enough quota is available to process this command",),
}

# `Sandbox: bash(123) deny(1) file-write-create /private/etc/x`, also without the prefix.
SANDBOX_EXEC_LOG = re.compile(
    r"\bdeny(?:\(\d+\))? (?P<operation>(?:file-(?:read|write)|network|process|mach)[\w*-]*)"
    r"(?: (?P<target>\S.*?))?\s*$"
)
