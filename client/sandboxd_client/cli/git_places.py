"""Where a git command reads from: folders that lend objects, and hosts that are reached by ssh."""

from __future__ import annotations

import os

from sandboxd_client.cli.git_files import git_dirs, read
from sandboxd_client.cli.plain_text import quoted
from sandboxd_client.cli.root_hints import NO_NUMBER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


_HIDDEN = ("/home", "/root", "/Users", "/tmp", "/var/tmp", "/run", "/private")


def half_shown(
    words: list[str], shown: Sequence[str], uid: int | None = None, *, minimal: bool = False
) -> str | None:
    """A folder to clone from whose objects lie in other folders: a worktree, a submodule, a clone
    that borrows. `shown`: folders that the sandbox shows, beside those of the machine, which a
    `minimal` base does not. `uid`: whose folders are proposed."""
    places = [word for word in words[1:] if not word.startswith("-") and os.path.isdir(word)]
    if words[0] not in ("clone", "fetch", "pull", "ls-remote") or not places:
        return None
    named, missing = os.path.abspath(places[0]), list[str]()
    hidden = ("/",) if minimal else (*_HIDDEN, os.path.expanduser("~"))
    for path in _objects_of(named):
        if _below(path, hidden) and not _below(path, [*shown, *missing]):
            missing.append(path)
    if not missing or not all(_is_of(uid, path) for path in missing):
        return None
    flags = " ".join(f"--read {quoted(path)}" for path in missing)
    if missing == [named]:
        return f"the sandbox does not show {quoted(named)}: add {flags}"
    return f"git needs more than {places[0]}, and the sandbox does not show it: add {flags}"


def hidden_git_dir(start: str, shown: Sequence[str], *, minimal: bool = False) -> str | None:
    """After git failed in `start`: its git dir lies in a folder that the sandbox does not show
    (git init --separate-git-dir, a link). The daemon shows those of worktrees and submodules."""
    top, git_dir, common = git_dirs(start)
    place = os.path.realpath(git_dir)
    hidden = ("/",) if minimal else (*_HIDDEN, os.path.expanduser("~"))
    if place == os.path.realpath(top) or common != git_dir or "/.git/modules/" in f"{place}/":
        return None
    if not os.path.isfile(os.path.join(place, "HEAD")) or not _below(place, hidden):
        return None
    if _below(place, list(map(os.path.realpath, shown))):
        return None
    return (
        f"the git dir {quoted(place)} exists on the host, and is not visible in the sandbox: add "
        f"--write {quoted(place)}"
    )


def _below(path: str, folders: Sequence[str]) -> bool:
    return any(f"{path}/".startswith(f"{one.rstrip('/')}/") for one in folders)


def _is_of(uid: int | None, path: str) -> bool:
    try:
        return uid in (None, NO_NUMBER) or os.stat(path).st_uid == uid
    except OSError:
        return False


def _objects_of(folder: str) -> list[str]:
    """The folders that git reads for the repository in `folder`."""
    top, _, git_dir = git_dirs(folder)
    if top != folder:
        return [folder]
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
