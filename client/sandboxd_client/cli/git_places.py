"""Where a git command reads from and writes to: remotes that are folders, or reached by ssh."""

from __future__ import annotations

import os

from sandboxd_client.cli.denial_lines import allowing
from sandboxd_client.cli.git_files import read
from sandboxd_client.cli.plain_text import quoted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any


def hidden_remote(
    words: list[str], denials: Sequence[dict[str, Any]], workspace: str
) -> str | None:
    """A remote that is a folder which the sandbox does not show, named by the user's own config."""
    if words[0] not in ("push", "fetch", "pull", "ls-remote"):
        return None
    lines = read(os.path.join(workspace, ".git", "config")).decode(errors="replace").splitlines()
    values = (line.partition("=")[2].strip().strip('"') for line in lines)
    places = {os.path.normpath(os.path.join(workspace, v.removeprefix("file://"))) for v in values}
    for denial in denials:
        target = str(denial.get("target"))
        flag = f"{'--write' if words[0] == 'push' else '--read'} {quoted(target)}"
        if target in places and flag not in allowing(denial.get("remedy")):
            return f"the remote is a folder that the sandbox does not show: add {flag}"
    return None


def half_shown(words: list[str], shown: Sequence[str]) -> str | None:
    """A folder to clone from whose objects lie in other folders: a worktree, a submodule, a clone
    that borrows. `shown`: folders that the sandbox shows."""
    places = [word for word in words[1:] if not word.startswith("-") and os.path.isdir(word)]
    if words[0] not in ("clone", "fetch", "pull", "ls-remote") or not places:
        return None
    missing = [
        path
        for path in _objects_of(os.path.abspath(places[0]))
        if not any(path == one or path.startswith(f"{one.rstrip('/')}/") for one in shown)
    ]
    if not missing:
        return None
    flags = " ".join(f"--read {quoted(path)}" for path in missing)
    return f"git needs more than {places[0]}, and the sandbox does not show it: add {flags}"


def _objects_of(folder: str) -> list[str]:
    """The folders that git reads for the repository in `folder`."""
    pointer = os.path.join(folder, ".git")
    git_dir = pointer if os.path.isdir(pointer) else folder
    if os.path.isfile(pointer):
        target = read(pointer).decode(errors="replace").removeprefix("gitdir:").strip()
        git_dir = os.path.normpath(os.path.join(folder, target))
    common = read(os.path.join(git_dir, "commondir")).decode(errors="replace").strip()
    git_dir = os.path.normpath(os.path.join(git_dir, common)) if common else git_dir
    lent = read(os.path.join(git_dir, "objects", "info", "alternates")).decode(errors="replace")
    objects = os.path.join(git_dir, "objects")
    return [folder, git_dir, *(os.path.normpath(os.path.join(objects, p)) for p in lent.split())]


def ssh_ends(words: list[str], hosts: list[str], workspace: str) -> list[str]:
    """Those of `hosts`, with the port, that this git command reaches by ssh, by its words or its
    remotes."""
    config = read(os.path.join(workspace, ".git", "config")).decode(errors="replace")
    found = (_ssh_end(place, host) for host in hosts for place in [*words, *config.split()])
    return [end for end in found if end is not None]


def _ssh_end(place: str, host: str) -> str | None:
    if f"@{host}:" in place and "://" not in place:
        return f"{host}:22"
    server = place.removeprefix("ssh://").partition("/")[0].rpartition("@")[2]
    name, _, port = server.partition(":")
    if not place.startswith("ssh://") or name != host:
        return None
    return f"{host}:{port if port.isdecimal() else 22}"
