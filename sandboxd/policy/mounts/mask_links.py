"""The symlinks on the way of masks: a mask lies on what they led to when the plan was made, and the
host can let them lead to something else."""

from __future__ import annotations

from collections.abc import Iterable

from sandboxd.platform.current import files
from sandboxd.policy.paths import recording_fs
from sandboxd.policy.paths.symlink_walk import Walk
from sandboxd.policy.plan import Link


def links_on_the_way(spellings: Iterable[str]) -> tuple[Link, ...]:
    """With what each of them holds."""
    found: set[Link] = set()
    for path in dict.fromkeys(spellings):
        if recording_fs.realpath(path) == path:
            continue
        way = Walk(path, recording_fs.link_target)
        found.update(Link(step.path, step.target) for step in way if step.target is not None)
    return tuple(sorted(found))


def first_changed(links: Iterable[Link]) -> str | None:
    """The first that leads elsewhere now, or that something else took the place of. One that is
    gone leads to nothing."""
    for link in links:
        try:
            if files.readlink(link.path) != link.target:
                return link.path
        except OSError as error:
            if error.errno not in recording_fs.VANISHED:
                return link.path
    return None
