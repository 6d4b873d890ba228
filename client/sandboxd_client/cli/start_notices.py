"""Before a command: what it gets that differs from what its command line seems to say."""

from __future__ import annotations

import os
import stat

from sandboxd_client.cli.plain_text import quote
from sandboxd_client.cli.screen import say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from sandboxd_client.cli.parse import Options

_RUN_OUTSIDE = (".git", ".envrc", ".vscode", ".idea", ".husky", ".pre-commit-config.yaml")
_OF_THE_USER = ("HOME", "USER", "LOGNAME")


def say_start_notices(options: Options, params: dict[str, Any], *, terminal: bool) -> None:
    """`params`: of `execute`. `terminal`: whether somebody sees where it starts."""
    if options.has("--quiet") or options.has("--json"):
        return
    if "pty" in params and not os.isatty(0) and _is_pipe_or_file(0):
        say(
            "--pty types what is piped in into the command's terminal, which echoes it; without "
            "--pty the command reads it as it is"
        )
    say_unprotected(options, params)
    folder = params.get("workspace")
    if folder is None:
        return
    if terminal and options.has("--workspace") and "cwd" not in params:
        say(f"starts in {quote(folder)}; --cwd names another folder")
    named = _named(options)
    if named:
        from sandboxd_client.cli.hints.root import account, given_up_for

        other = given_up_for(folder)
        if other is not None:
            _say_replaced(named, params, account(other), folder)


def say_unprotected(options: Options, params: dict[str, Any]) -> None:
    """Without a preset nothing is read-only in a folder that the manifest makes writable."""
    if "preset" in params or options.has("--quiet") or options.has("--json"):
        return
    written = params.get("manifest", {}).get("fs_write_allow") or []
    folder = next(filter(_holds_what_runs, written), None)
    if folder is not None:
        say(
            f"warning: the manifest makes {quote(folder)} writable with git's hooks and config and "
            "other files that run later outside: --preset workspace-write keeps these read-only"
        )


def _holds_what_runs(folder: str) -> bool:
    """A repository, one in it, a part of a git dir, or a folder with a well-known such file."""
    try:
        names = set(os.listdir(folder))
    except OSError:  # no folder, which the daemon tells of
        names = set()
    return (
        ".git" in folder.split(os.sep)
        or not names.isdisjoint(_RUN_OUTSIDE)
        or {"HEAD", "objects"} <= names
        or any(os.path.lexists(os.path.join(folder, name, ".git")) for name in names)
    )


def _is_pipe_or_file(fd: int) -> bool:
    mode = os.fstat(fd).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode)


def _say_replaced(named: set[str], params: dict[str, Any], who: str, workspace: str) -> None:
    """The daemon takes values of root's own for the defaults, which they are nearly always."""
    from sandboxd_client.cli.hints.root import account, has_home, home_inside
    from sandboxd_client.cli.workspace import account_home

    home = home_inside(workspace) if has_home(workspace) else "the private /tmp"
    for name, value in params["manifest"].get("env", []):
        if name not in named:
            continue
        if name == "HOME" and value in (account_home(), os.environ.get("HOME")):
            say(f"HOME is {home}, not {value}: the command runs as {who}, the workspace's owner")
        elif name != "HOME" and value == account(0):
            say(f"{name} is not {value}: the command runs as {who}, the workspace's owner")


def _named(options: Options) -> set[str]:
    """Which of the variables that belong to a user were asked for by their names."""
    passed = [part for item in options.all("--env-pass") for part in item.split(",")]
    asked = {item.partition("=")[0] for item in (*options.all("--env"), *passed)}
    return asked.intersection(_OF_THE_USER)
