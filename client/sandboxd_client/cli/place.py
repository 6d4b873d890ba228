"""Which folder is the workspace, and what a path on the command line means.

The home folder and / are never the workspace: a sandbox that may write all of a home folder
protects nothing in it. Refusing is better than guessing a smaller one.
"""

from __future__ import annotations

import os
import sys

from sandboxd_client.cli.parse import UsageError


def resolve(path: str, base: str | None = None) -> str:
    """Absolute, with ~ expanded; the caller's own spelling is kept otherwise."""
    if not path:
        raise UsageError("a path is empty", "name a file or folder")
    expanded = os.path.expanduser(path)
    if expanded.startswith("~"):
        raise UsageError(f"there is no home folder for {path!r}", "write the path out")
    return os.path.normpath(os.path.join(base or here(), expanded))


def here() -> str:
    try:
        return os.getcwd()
    except OSError:
        raise UsageError(
            "the current folder does not exist any more", "change to another, or give --cwd"
        ) from None


def workspace(named: str | None) -> str | None:
    """The named folder, else the git root, else the current folder; None: too wide for one."""
    homes = _homes()
    if named is not None:
        folder = resolve(named)
        if _too_wide(folder, homes):
            raise UsageError(
                f"{folder} cannot be the workspace: it holds a whole home folder or the machine",
                "name a project folder below it, or allow single paths with --write",
            )
        return folder
    current = here()
    root = _git_root(current, homes)
    folder = root or current
    return None if _too_wide(folder, homes) else folder


def _git_root(folder: str, homes: set[str]) -> str | None:
    while not _too_wide(folder, homes):
        if os.path.lexists(os.path.join(folder, ".git")):
            return folder
        folder = os.path.dirname(folder)
    return None


def _homes() -> set[str]:
    """What $HOME says and what the system says: either may be the one that matters."""
    homes = {os.path.realpath(os.path.expanduser("~")), _account_home()}
    # Where the home folder is / (system accounts), only / itself is too wide.
    return {home for home in homes if home not in ("", "/")}


def _account_home() -> str:
    if sys.platform == "win32":
        return ""
    import pwd

    try:
        return os.path.realpath(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:
        return ""


def _too_wide(folder: str, homes: set[str]) -> bool:
    """A home folder, or something that contains one."""
    real = os.path.realpath(folder)
    if real == os.path.dirname(real):
        return True
    return any(home == real or home.startswith(real + os.sep) for home in homes)
