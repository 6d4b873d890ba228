"""The three Landlock system calls, raw.

The `landlock` package names the constants and the file rule's layout; its calls are not used: they
know neither ports nor scopes, and they report a stale errno of an earlier call as a failure.
"""

from __future__ import annotations

import ctypes
import functools
import os
from typing import Any

from landlock.plumbing import (
    CREATE_RULESET_VERSION,
    SYSCALL_ADD_RULE,
    SYSCALL_CREATE_RULESET,
    PathBeneathAttr,
)

RULE_PATH_BENEATH = 1
RULE_NET_PORT = 2


class RulesetAttr(ctypes.Structure):
    """struct landlock_ruleset_attr as of ABI 6; older kernels take a prefix of it."""

    _fields_ = (
        ("handled_access_fs", ctypes.c_uint64),
        ("handled_access_net", ctypes.c_uint64),
        ("scoped", ctypes.c_uint64),
    )


class NetPortAttr(ctypes.Structure):
    """struct landlock_net_port_attr; the port is in host byte order."""

    _fields_ = (("allowed_access", ctypes.c_uint64), ("port", ctypes.c_uint64))


@functools.cache
def _syscall() -> Any:
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    return call


def _call(name: str, number: int, *arguments: object) -> int:
    result = int(_syscall()(ctypes.c_long(number), *arguments))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")
    return result


def abi_version() -> int:
    """The ABI of this kernel; OSError with ENOSYS or EOPNOTSUPP where there is none."""
    return _call(
        "landlock_create_ruleset",
        SYSCALL_CREATE_RULESET,
        ctypes.c_void_p(None),
        ctypes.c_size_t(0),
        ctypes.c_uint32(CREATE_RULESET_VERSION),
    )


def create_ruleset(attr: RulesetAttr, size: int) -> int:
    """A new ruleset's descriptor, close-on-exec. `size` is that of the kernel's structure."""
    return _call(
        "landlock_create_ruleset",
        SYSCALL_CREATE_RULESET,
        ctypes.byref(attr),
        ctypes.c_size_t(size),
        ctypes.c_uint32(0),
    )


def add_path_rule(ruleset: int, path_fd: int, access: int) -> None:
    _add_rule(ruleset, RULE_PATH_BENEATH, PathBeneathAttr(access, path_fd))


def add_port_rule(ruleset: int, port: int, access: int) -> None:
    _add_rule(ruleset, RULE_NET_PORT, NetPortAttr(access, port))


def _add_rule(ruleset: int, kind: int, attr: Any) -> None:
    _call(
        "landlock_add_rule",
        SYSCALL_ADD_RULE,
        ctypes.c_int(ruleset),
        ctypes.c_uint(kind),
        ctypes.byref(attr),
        ctypes.c_uint32(0),
    )
