"""Resolve a caller's path to its canonical form, and record the symlinks on the way.

An earlier command may have planted a symlink (`planted_links`). What lies behind such a link never
counts as named by the caller: only the caller's own spelling lifts a mask or a protection.

Paths are resolved once, here. Before a bind the path is opened without following any symlink and
compared with the recorded identity, so a path that is swapped in between cannot widen the plan.
"""

from __future__ import annotations

import errno
import os
import posixpath
import re
import stat

import msgspec

from sandboxd.platform.current import files
from sandboxd.policy.paths import recording_fs
from sandboxd.policy.paths.refused_links import could_be_planted
from sandboxd.policy.paths.symlink_walk import Walk
from sandboxd.policy.plan import Identity, Link
from sandboxd_proto.errors import PathDenied

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class Resolved(msgspec.Struct, frozen=True):
    path: str
    identity: Identity
    links: tuple[Link, ...]
    planted: tuple[Link, ...] = ()  # the links among them that a command could have made

    @property
    def by_name(self) -> bool:
        """Whether the caller's spelling itself names this path."""
        return not self.planted


def check_spelling(path: str, field: str) -> None:
    """Checks that need no look at the file system."""
    if not path:
        raise PathDenied("the path is empty", field=field, remedy="give an absolute path")
    if _CONTROL.search(path):
        raise PathDenied(
            f"the path {path!r} has a control character in it",
            field=field,
            remedy="give the path without NUL, line ends or other control characters",
        )
    if path == "~" or path.startswith("~/"):
        raise PathDenied(
            f"the path {path!r} is not absolute: ~ stands for the home folder in a shell only",
            field=field,
            remedy="give the absolute path (in Python: os.path.expanduser)",
        )
    problem = files.spelling_problem(path)
    if problem is not None:
        raise PathDenied(
            f"the path {path!r} {problem}",
            field=field,
            remedy=f"give the absolute path, for example {posixpath.join('/abs/dir', path)!r}",
        )
    if len(os.fsencode(path)) > 4095:
        raise PathDenied("the path is longer than 4095 bytes", field=field)


def resolve(path: str, field: str) -> Resolved:
    """The canonical place of an existing path; PathDenied names the field otherwise."""
    check_spelling(path, field)
    path = files.internal(path)
    try:
        way = _followed(path)
        canonical = recording_fs.spelled(way.end)
        status = recording_fs.lstat(canonical)
        if stat.S_ISLNK(status.st_mode):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    except OSError as error:
        raise _cannot_resolve(path, field, error) from None
    check_spelling(canonical, field)
    planted = tuple(link for link in way.all_links if could_be_planted(link.path))
    return Resolved(canonical, Identity.of(status), way.links, planted)


def _cannot_resolve(path: str, field: str, error: OSError) -> PathDenied:
    if error.errno == errno.ENOENT:
        return PathDenied(
            f"{path} does not exist",
            field=field,
            remedy="create it first, or leave it out of the "
            + ("manifest" if field.startswith("fs_") else "request"),
        )
    reason = os.strerror(error.errno or 0)
    return PathDenied(f"{path} cannot be used: {reason}", field=field)


class _Way(msgspec.Struct, frozen=True):
    """`links`: those that the spelling itself names. `all_links`: also those behind them."""

    end: str
    links: tuple[Link, ...]
    all_links: tuple[Link, ...]


def _followed(path: str) -> _Way:
    """Follow `path` once. Each name is looked up once, so that a link that is swapped in and out
    meanwhile is either followed and listed, or neither."""
    seen: dict[str, str | None] = {}

    def read_link(step: str) -> str | None:
        if step not in seen:
            seen[step] = _link_text(step)
        return seen[step]

    way = Walk(path, read_link)
    found = [step.path for step in way if step.target is not None]
    ends = {link: _end(link, seen) for link in found}
    named: list[Link] = []
    inner: set[str] = set()
    for link in found:
        if link not in inner:
            named.append(Link(link, ends[link]))
            inner |= {step.path for step in Walk(link, seen.get)} - {link}
    links = tuple(Link(link, ends[link]) for link in dict.fromkeys(found))
    return _Way(way.at, tuple(named), links)


def _end(link: str, seen: dict[str, str | None]) -> str:
    way = Walk(link, seen.get)
    for _ in way:
        pass
    return way.at


def _link_text(path: str) -> str | None:
    """What a symlink holds; None if it is none."""
    try:
        return recording_fs.readlink(path)
    except OSError as error:
        if error.errno == errno.EINVAL:
            return None
        raise
