"""Security descriptors for what the daemon makes: for its user and the system alone."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from ctypes import c_void_p

from sandboxd.windows import api
from sandboxd.windows.integrity import private_sddl
from sandboxd.windows.structures import SECURITY_ATTRIBUTES
from sandboxd.windows.tokens import current_integrity, current_user

assert sys.platform == "win32"


def private_attributes() -> AbstractContextManager[SECURITY_ATTRIBUTES]:
    return security_attributes(private_sddl(current_user(), current_integrity()))


@contextmanager
def security_attributes(sddl: str, *, inherit: bool = False) -> Iterator[SECURITY_ATTRIBUTES]:
    descriptor = c_void_p()
    api.check(
        api.ConvertStringSecurityDescriptor(sddl, 1, ctypes.byref(descriptor), None),
        "the security descriptor",
    )
    try:
        yield SECURITY_ATTRIBUTES(ctypes.sizeof(SECURITY_ATTRIBUTES), descriptor, int(inherit))
    finally:
        api.LocalFree(descriptor)
