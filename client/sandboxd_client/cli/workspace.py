"""Which folder is the workspace, and what a path on the command line means.

The home folder and / are never the workspace: a sandbox that may write all of a home folder
protects nothing in it. Refusing is better than guessing a smaller one.
"""

from __future__ import annotations

import os
import sys

from sandboxd_client.cli.parse import Options, UsageError


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
        if _too_wide(os.path.realpath(folder), homes):
            raise UsageError(
                f"{folder} cannot be the workspace: it holds a whole home folder or the machine",
                "name a project folder below it, or allow single paths with --write",
            )
        return folder
    current = here()
    root = _git_root(current, homes)
    folder = root or current
    return None if _too_wide(os.path.realpath(folder), homes) else folder


def shown_folders(options: Options) -> list[str]:
    """The workspace, and what --read and --write name."""
    folder = workspace(options.one("--workspace")) or here()
    return [folder, *map(resolve, (*options.all("--read"), *options.all("--write")))]


def start_folder(folder: str) -> str:
    """Of a command with this workspace: the current folder where it lies in there."""
    return here() if inside(here(), folder) else folder


def inside(path: str, root: str) -> bool:
    if path == root:
        return True
    real, real_root = os.path.realpath(path), os.path.realpath(root)
    return real == real_root or real.startswith(real_root.rstrip(os.sep) + os.sep)


def git_root() -> str | None:
    """The repository that the current folder lies in."""
    return _git_root(here(), _homes())


def _git_root(folder: str, homes: set[str]) -> str | None:
    """The repository that `folder` lies in. One of another owner above it does not count."""
    owner = _owner(folder)
    is_real = folder == os.path.realpath(folder)  # then so is every folder above it
    while not _too_wide(folder if is_real else os.path.realpath(folder), homes):
        pointer = os.path.join(folder, ".git")
        if owner == _owner(folder) == _owner(pointer) and _is_repository(pointer):
            return folder
        folder = os.path.dirname(folder)
    return None


def _owner(path: str) -> int | None:
    try:
        return os.lstat(path).st_uid
    except OSError:
        return None


def _is_repository(pointer: str) -> bool:
    """Whether git accepts it: a git dir, or a file that names one."""
    git_dir = pointer
    if os.path.isfile(pointer) and not os.path.islink(pointer):
        try:
            with open(pointer, encoding="utf-8", errors="surrogateescape") as file:
                word, _, target = file.readline(8192).partition(":")
        except OSError:
            return False
        if word != "gitdir":
            return False
        git_dir = os.path.join(os.path.dirname(pointer), target.strip())
        return os.path.isfile(os.path.join(git_dir, "HEAD"))
    return (
        os.path.lexists(os.path.join(git_dir, "HEAD"))
        and os.path.isdir(os.path.join(git_dir, "objects"))
        and os.path.isdir(os.path.join(git_dir, "refs"))
    )


def _homes() -> set[str]:
    """The home folder by $HOME and by the account: both count."""
    named = os.path.expanduser("~")  # stays "~" without HOME and account
    homes = {os.path.realpath(named) if os.path.isabs(named) else "", account_home()}
    # Where the home folder is / (system accounts), only / itself is too wide.
    return {home for home in homes if home not in ("", "/")}


def account_home() -> str:
    if sys.platform == "win32":
        return ""
    import pwd

    try:
        return os.path.realpath(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:
        return ""


def _too_wide(real: str, homes: set[str]) -> bool:
    """A home folder, or something that contains one. `real`: its path without symlinks."""
    if real == os.path.dirname(real):
        return True
    return any(home == real or home.startswith(real + os.sep) for home in homes)
