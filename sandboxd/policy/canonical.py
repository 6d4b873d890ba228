"""A caller's path to the one place that it names, and the symlinks that its spelling went through.

Resolving happens once, here. What is bound later is opened again without following any symlink and
compared with the identity noted here, so a path swapped in between cannot widen the plan.
"""

from __future__ import annotations

import errno
import os
import re
from dataclasses import dataclass

from sandboxd.policy import hostfs
from sandboxd.policy.plan import Identity, Link
from sandboxd_proto.errors import PathDenied

_MAX_LINKS = 40  # the kernel's own limit
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class Resolved:
    path: str
    identity: Identity
    links: tuple[Link, ...]


def check_spelling(path: str, field: str) -> None:
    """What can be refused without looking at the file system."""
    if not path:
        raise PathDenied("the path is empty", field=field, remedy="give an absolute path")
    if _CONTROL.search(path):
        raise PathDenied(
            f"the path {path!r} has a control character in it",
            field=field,
            remedy="give the path without NUL, line ends or other control characters",
        )
    if not os.path.isabs(path):
        raise PathDenied(
            f"the path {path!r} is not absolute",
            field=field,
            remedy=f"give the absolute path, for example {os.path.join('/abs/dir', path)!r}",
        )
    if len(os.fsencode(path)) > 4095:
        raise PathDenied("the path is longer than 4095 bytes", field=field)


def resolve(path: str, field: str) -> Resolved:
    """The canonical place of an existing path; PathDenied names the field otherwise."""
    check_spelling(path, field)
    try:
        canonical = hostfs.realpath(path, strict=True)
        status = hostfs.lstat(canonical)
    except OSError as error:
        raise _cannot_resolve(path, field, error) from None
    check_spelling(canonical, field)
    return Resolved(canonical, Identity.of(status), tuple(_links_on(path)))


def _cannot_resolve(path: str, field: str, error: OSError) -> PathDenied:
    if error.errno == errno.ENOENT:
        return PathDenied(
            f"{path} does not exist",
            field=field,
            remedy="create it first, or leave it out of the manifest",
        )
    reason = os.strerror(error.errno or 0)
    return PathDenied(f"{path} cannot be used: {reason}", field=field)


def _links_on(path: str) -> list[Link]:
    """The symlinks that `path` walks through, each with the canonical place it leads to."""
    links: list[Link] = []
    at = "/"
    pending = [part for part in path.split("/") if part not in ("", ".")]
    while pending and len(links) < _MAX_LINKS:
        part = pending.pop(0)
        step = os.path.dirname(at) if part == ".." else os.path.join(at, part)
        if part != ".." and hostfs.islink(step):
            target = hostfs.realpath(step)
            links.append(Link(step, target))
            at = target
        else:
            at = step
    return links
