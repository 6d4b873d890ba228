"""Files that the user's git settings name: without them git works as another author, or ignores
other files than on the host."""

from __future__ import annotations

import posixpath
import stat
from collections.abc import Iterable, Iterator

from sandboxd.policy.mounts.secret_paths import is_secret
from sandboxd.policy.paths import recording_fs
from sandboxd.policy.paths.canonical import Resolved, resolve
from sandboxd.policy.paths.within import within_any
from sandboxd.policy.protected import git_config
from sandboxd.policy.protected.git_dir import read_text
from sandboxd_proto.errors import PathDenied

_MOST_FILES = 16
_MOST_BYTES = 1 << 16  # of each file
_LISTS = ("core.excludesfile", "core.attributesfile")


def named_files(home: str, uid: int, closed: Iterable[str]) -> list[Resolved]:
    """Plain files of this user or of root, in the home folder or /etc, that includes (whatever
    their conditions) and the lists of ignored files and attributes name.

    `closed`: what is hidden or writable inside. It is not read, because a command that wrote there,
    or made a link, would choose what the next command sees.
    """
    places = (recording_fs.realpath(home), "/etc")
    closed = tuple(closed)
    pending = [f"{home}/.config/git/config", f"{home}/.gitconfig"]
    found: dict[str, Resolved] = {}
    read: set[str] = set()
    while pending and len(found) < _MOST_FILES:
        file = pending.pop(0)
        real = recording_fs.realpath(file)
        if real in read or within_any(real, closed):
            continue
        read.add(real)
        for is_config, path in _named(file, home):
            at = _plain(path, uid, places) if len(found) < _MOST_FILES else None
            if at is not None and not within_any(at.path, closed):
                found[at.path] = at
                pending += [path] if is_config else []
    return list(found.values())


def _named(file: str, home: str) -> Iterator[tuple[bool, str]]:
    """(whether git reads it as a config, path)."""
    for key, value in git_config.entries(read_text(file, _MOST_BYTES)):
        includes = key == "include.path" or (key.startswith("includeif.") and key.endswith(".path"))
        if not includes and key not in _LISTS:
            continue
        path = posixpath.join(home, value[2:]) if value.startswith("~/") else value
        if includes:
            path = posixpath.join(posixpath.dirname(file), path)
        if posixpath.isabs(path):
            yield includes, posixpath.normpath(path)


def _plain(path: str, uid: int, places: tuple[str, ...]) -> Resolved | None:
    try:
        at = resolve(path, "preset")
        status = recording_fs.stat(at.path)
    except (PathDenied, OSError):
        return None
    plain = stat.S_ISREG(status.st_mode) and status.st_uid in (0, uid)
    shows = within_any(at.path, places) and not is_secret(at.path, places[:1])
    return at if plain and shows and at.by_name else None
