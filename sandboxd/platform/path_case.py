"""Find the name on disk of a path: on a volume that ignores case `/Users/Me` opens `/Users/me`.

Paths are compared with one another as text, and rules of a sandbox profile match the name on disk.
In another spelling a secret would not be recognised, and a rule would match nothing. Only macOS
needs this: Linux has one spelling, and Windows' realpath gives the name on disk.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

_F_GETPATH = 50
_MAXPATHLEN = 1024


def on_disk(path: str) -> str:
    """The name on disk of a canonical path."""
    return resolve_case(path, _look) if sys.platform == "darwin" else path


def resolve_case(path: str, look: Callable[[str], str]) -> str:
    """`look` gives the name on disk of what exists. The rest of a path has no spelling yet."""
    rest: list[str] = []
    while path != "/":
        try:
            return os.path.join(look(path), *reversed(rest))
        except OSError:
            path, _, name = path.rpartition("/")
            path = path or "/"
            rest.append(name)
    return os.path.join("/", *reversed(rest))


def path_of(fd: int) -> str:
    """Where the file behind a descriptor is now, as spelled on disk. macOS only."""
    if sys.platform == "win32":
        raise NotImplementedError
    import fcntl

    raw = fcntl.fcntl(fd, _F_GETPATH, b"\0" * _MAXPATHLEN)
    return os.fsdecode(raw.partition(b"\0")[0])


def _look(path: str) -> str:
    # O_EVTONLY asks for no access, O_SYMLINK for a link itself.
    flags = getattr(os, "O_EVTONLY", os.O_RDONLY) | getattr(os, "O_SYMLINK", 0)
    fd = os.open(path, flags | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    try:
        return path_of(fd)
    finally:
        os.close(fd)
