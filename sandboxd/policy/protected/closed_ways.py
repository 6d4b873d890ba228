"""Refuse a plan that would rest on what a closed folder or file hides.

One command closes a folder of its user while another one is planned. Settings in there would be
taken for empty, and links in there for none: what they lead to would stay writable. Folders that a
command could not have closed, and could not open, are none of these.
"""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from sandboxd.policy.paths import recording_fs
from sandboxd.policy.paths.closed_folders import can_be_opened, closed_folder
from sandboxd.policy.paths.within import within_any
from sandboxd_proto.errors import PathDenied

_writable: ContextVar[tuple[str, ...]] = ContextVar("writable folders of a plan", default=())


@contextmanager
def in_folders(writable: Iterable[str]) -> Iterator[None]:
    """`refuse` looks at what lies in these; elsewhere no command closes anything."""
    token = _writable.set(tuple(writable))
    try:
        yield
    finally:
        _writable.reset(token)


def refuse(path: str) -> None:
    """After a PermissionError: PathDenied if a command could have made that `path` cannot be
    looked at, or read."""
    roots = _writable.get()
    if not roots:
        return
    real = recording_fs.realpath(path)
    closed = closed_folder(real) or (real if can_be_opened(real) else None)
    if closed is not None and within_any(closed, roots):
        mode = "u+rwx" if closed != real or recording_fs.isdir(real) else "u+rw"
        raise PathDenied(
            f"{closed} cannot be looked into, so what has to be protected because of "
            f"{posixpath.basename(path)} cannot be found: a command may have closed it",
            field="workspace",
            remedy=f"open it again: chmod {mode} {shlex.quote(closed)}",
        )


def refuse_hidden(path: str) -> None:
    """The same for a path that seems to be missing."""
    try:
        recording_fs.lstat(path)
    except PermissionError:
        refuse(path)
    except OSError:
        pass
