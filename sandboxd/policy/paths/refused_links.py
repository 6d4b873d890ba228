"""Symlinks that a sandboxed command could have made, and the refusal of a request through one.

A request through such a link is refused if the link leads out of its own folder (or out of the
workspace).
"""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING

from sandboxd.platform.current import files
from sandboxd.policy.mounts.secret_paths import is_secret
from sandboxd.policy.paths import recording_fs
from sandboxd.policy.paths.homes import homes
from sandboxd.policy.paths.refused_places import is_sealed
from sandboxd.policy.paths.within import is_below, within
from sandboxd.policy.plan import Link
from sandboxd_proto.errors import PathDenied

if TYPE_CHECKING:
    from sandboxd.policy.paths.canonical import Resolved


def refuse_planted(found: Resolved, spelled: str, field: str, root: str | None) -> None:
    """PathDenied if a link that a command could have made leads out of its folder.

    A command that could make a link in a folder could write everything in that folder, so a link
    that stays in it widens nothing. The same holds for the workspace, `root`.
    """
    for link in found.planted:
        folder = posixpath.dirname(link.path)
        ends = (link.target, found.path)  # a `..` behind the link leads on from its target
        if all(is_below(end, folder) for end in ends):
            continue
        if root is not None and all(within(end, root) for end in (link.path, *ends)):
            continue
        raise _planted_error(found, spelled, link, field)


def _planted_error(found: Resolved, spelled: str, link: Link, field: str) -> PathDenied:
    # A remedy must never lead to a secret: agents apply remedies.
    secret = is_secret(found.path, homes())
    return PathDenied(
        f"{spelled} leads to {found.path} through the symlink {link.path}, which a sandboxed "
        "command could have made",
        field=field,
        remedy="leave the link out of the request"
        if secret
        else f"if that place is meant, name it: {found.path}",
    )


def could_be_planted(link: str) -> bool:
    """Commands run as their user, or as root without capabilities where the daemon is root."""
    if is_sealed(posixpath.dirname(link)):
        return False
    return _owner(link) != 0 or files.is_root()


def _owner(link: str) -> int | None:
    try:
        return recording_fs.lstat(link).st_uid
    except OSError:
        return None
