"""libseccomp through pyseccomp, found by its name and not by running ldconfig or a compiler.

`ctypes.util.find_library`, which pyseccomp calls at its import, starts processes and waits for
them: it would block the event loop, and fail where no process can be made.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import importlib
import threading
from types import ModuleType

_SONAMES = {"c": "libc.so.6", "seccomp": "libseccomp.so.2"}
_importing = threading.Lock()


def pyseccomp() -> ModuleType:
    """Raises RuntimeError where there is no libseccomp."""
    with _importing:
        find = ctypes.util.find_library

        def found(name: str) -> str | None:
            soname = _SONAMES.get(name)
            return soname if soname is not None and _loads(soname) else find(name)

        ctypes.util.find_library = found
        try:
            module = importlib.import_module("pyseccomp")
        finally:
            ctypes.util.find_library = find
        return module


def _loads(soname: str) -> bool:
    try:
        ctypes.CDLL(soname)
    except OSError:
        return False
    return True
