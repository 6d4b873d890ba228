"""Folders of a home that are no workspace unless the caller also names them in `fs_write_allow`.

The workspace is often only the folder that someone happens to be in. There the command could read
keys, or replace what the host runs at the next login.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from sandboxd.platform.current import files
from sandboxd.policy.data.protected_names import HOME
from sandboxd.policy.mounts.secret_paths import is_secret
from sandboxd.policy.paths import recording_fs
from sandboxd.policy.paths.homes import home_of, homes
from sandboxd.policy.paths.within import is_below, within
from sandboxd.policy.plan import Access
from sandboxd_proto.errors import PathDenied
from sandboxd_proto.manifest import Manifest

if TYPE_CHECKING:
    from sandboxd.policy.request import Machine

# Agents keep checkouts of projects there, in the folder of their settings.
_CHECKOUTS = frozenset(("worktree", "worktrees"))
_SECRET = "it is hidden by default, because it holds secrets"


def refuse_workspace(path: str, access: Access, manifest: Manifest, machine: Machine) -> None:
    """PathDenied for secrets, and for a writable folder from which the host runs programs.

    `path` is canonical. `manifest`: what the caller allows to be written, and its HOME, which need
    not be the home of the user database.
    """
    owner = home_of(recording_fs.stat(path).st_uid) if machine.uid == 0 else None
    variable = dict(manifest.env or ()).get("HOME") or machine.variable_home
    found = (machine.home, owner, variable if posixpath.isabs(variable) else None)
    own = {recording_fs.realpath(home) for home in found if home} - {"/"}
    people = homes(*own)
    named = manifest.fs_write_allow
    for spelling in _spellings(path, own):
        why = _why_not(spelling, access, people)
        if why is not None and path not in _canonical(named or ()):
            raise PathDenied(
                f"{path} cannot be the workspace: {why}", field="workspace",
                # No remedy names a secret or a start-up file: an agent would apply it.
                remedy="give the folder of the project as the workspace",
            )  # fmt: skip


def _why_not(path: str, access: Access, people: tuple[str, ...]) -> str | None:
    if is_secret(path, ()):
        return _SECRET
    above = (home for home in people if is_below(path, home))  # one can lie in another
    return next(filter(None, (_why_not_in(home, path, access) for home in above)), None)


def _why_not_in(home: str, path: str, access: Access) -> str | None:
    parts = path[len(home) + 1 :].split("/")
    if is_secret(path, [home]) and not _CHECKOUTS.intersection(parts[:-1]):
        return _SECRET
    if access == "read":
        return None
    for count in range(1, len(parts) + 1):
        why = HOME.get("/".join(parts[:count]))
        # Agents' own folders are in both lists.
        if why is not None and not _CHECKOUTS.intersection(parts[count:-1]):
            return f"~/{'/'.join(parts[:count])} is protected: {why}"
    return None


def _spellings(path: str, own: Iterable[str]) -> Iterator[str]:
    """The path, and as it is spelled through symlinks of a home: dotfiles are often kept apart."""
    yield path
    for home in own:
        for folder in (home, f"{home}/.config", f"{home}/.local"):
            try:
                entries = recording_fs.entries(folder)
            except OSError:
                continue
            for link in (entry.path for entry in entries if entry.is_symlink()):
                end = recording_fs.realpath(link)
                if end != "/" and within(path, end):
                    yield link + path[len(end) :]


def _canonical(paths: Iterable[str]) -> set[str]:
    return {recording_fs.realpath(files.internal(path)) for path in paths}
