"""Where a git command reads from: folders that lend objects, and hosts that are reached by ssh."""

from __future__ import annotations

import os

from sandboxd_client.cli.hints.git.files import git_dirs, read
from sandboxd_client.cli.hints.root import NO_NUMBER
from sandboxd_client.cli.plain_text import quote

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


# With the base `host` the rest of the machine shows.
HIDDEN = ("/home", "/root", "/Users", "/tmp", "/var/tmp", "/run", "/private")


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
    hidden = ("/",) if minimal else (*HIDDEN, os.path.expanduser("~"))
    for path in _objects_of(named):
        if lies_below(path, hidden) and not lies_below(path, [*shown, *missing]):
            missing.append(path)
    if not missing or not all(_is_of(uid, path) for path in missing):
        return None
    flags = " ".join(f"--read {quote(path)}" for path in missing)
    if missing == [named]:
        return f"the sandbox does not show {quote(named)}: add {flags}"
    return f"git needs more than {places[0]}, and the sandbox does not show it: add {flags}"


def hard_links(words: Sequence[str], errors: bytes | None) -> str | None:
    """`git clone --local` of a folder that lies in another mount. `errors`: the end of its stderr,
    if that is known."""
    local = "--local" in words or "-l" in words
    if words[0] != "clone" or not local or b"link" not in (errors or b"link").lower():
        return None
    if not any(os.path.isdir(word) for word in words[1:]):
        return None
    return (
        "git clone --local makes hard links, and between two folders that the sandbox shows there "
        "are none: git clone --no-local copies instead"
    )


def hidden_git_dir(start: str, shown: Sequence[str], *, minimal: bool = False) -> str | None:
    """After git failed in `start`: its git dir lies in a folder that the sandbox does not show (the
    workspace is a part of the repository; git init --separate-git-dir; a link). The daemon shows
    those of worktrees and submodules. Git takes files for deleted that the sandbox does not show:
    its git dir is proposed only where the whole work tree shows."""
    top, git_dir, common = git_dirs(start)
    place = os.path.realpath(git_dir)
    hidden = ("/",) if minimal else (*HIDDEN, os.path.expanduser("~"))
    if place == os.path.realpath(top) or common != git_dir or "/.git/modules/" in f"{place}/":
        return None
    if not os.path.isfile(os.path.join(place, "HEAD")) or not lies_below(place, hidden):
        return None
    shown = list(map(os.path.realpath, shown))
    if lies_below(place, shown):
        return None
    if not lies_below(os.path.realpath(top), shown):
        return (
            f"the workspace is only a part of the repository {quote(top)}: git needs all of it, "
            f"-w {quote(top)} --cwd {quote(start)}"
        )
    return (
        f"the git dir {quote(place)} exists on the host, and is not visible in the sandbox: add "
        f"--write {quote(place)}"
    )


def lies_below(path: str, folders: Sequence[str]) -> bool:
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
