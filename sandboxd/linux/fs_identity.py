"""Look at and write files as another user, in one thread of a daemon of root.

The kernel keeps these identities for each thread. Without the file system's user id 0 a thread has
none of the capabilities that pass over permissions, so it can do with files what that user can.
"""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager

from sandboxd.policy.plan import RunAs

# libc's function would change every thread of the process.
_SETGROUPS = {"x86_64": 116, "aarch64": 159, "riscv64": 159}
_libc = ctypes.CDLL(None, use_errno=True)


@contextmanager
def acting_as(run_as: RunAs | None) -> Iterator[None]:
    """For a thread of our own that ends afterwards. OSError where it cannot be done."""
    if run_as is None:
        yield
        return
    groups = os.getgroups()
    try:
        _set_groups([run_as.gid])
        _set("setfsgid", run_as.gid)
        _set("setfsuid", run_as.uid)
        yield
    finally:
        _set("setfsuid", os.geteuid())
        _set("setfsgid", os.getegid())
        _set_groups(groups)


def _set(call: str, identity: int) -> None:
    """These calls tell no error: the second one returns what is set now."""
    function = getattr(_libc, call)
    function(identity)
    if function(-1) != identity:
        raise PermissionError(f"{call} to {identity} had no effect")


def _set_groups(groups: list[int]) -> None:
    number = _SETGROUPS.get(platform.machine())
    if number is None:
        raise PermissionError(f"setgroups is not known for {platform.machine()}")
    listed = (ctypes.c_uint32 * len(groups))(*groups)
    if _libc.syscall(number, len(groups), listed) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), "setgroups")
