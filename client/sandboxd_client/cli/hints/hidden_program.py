"""Where a program lies that a sandbox does not show, and the interpreter that its first line names.

A program may be a link to another one, and a script needs its interpreter: each step of the way has
to be shown. A virtual environment, or another installation, is needed as a whole.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from sandboxd_client.cli.plain_text import one_line, quote

# The read-only base of every sandbox.
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc", "/opt", "/nix/store")
_MOST_STEPS = 16
# Hidden folders that hold programs. Others hold settings and secrets.
_TOOLS = (".venv", ".virtualenvs", ".pyenv", ".local", ".cargo", ".rustup", ".nvm", ".fnm",
          ".volta", ".nodenv", ".rbenv", ".rvm", ".asdf", ".sdkman", ".conda", ".deno", ".bun",
          ".nox", ".tox")  # fmt: skip


def where_it_lies(found: str, shown: Sequence[str]) -> str | None:
    """What to add for the program `found`. `shown`: folders that the sandbox shows, beside the
    system's."""
    interpreter = _first_line(os.path.realpath(found))
    if interpreter and not os.path.exists(interpreter):
        return f"its first line names {one_line(interpreter)}, which does not exist"
    hidden = _hidden(found, shown)
    named = interpreter and not hidden
    if named:  # the text of a script that a command may have written
        hidden = [at for at in _hidden(interpreter, shown) if _is_tool(at)]
    if not hidden:
        return None
    closed = _closed_to_user(hidden, shown)
    if closed:
        return closed
    flags = " ".join(f"--read {quote(folder)}" for folder in dict.fromkeys(map(_whole, hidden)))
    what = "its first line names" if named else "on this machine it is"
    return f"{what} {one_line(hidden[0])}, which the sandbox does not show; add {flags}"


def _closed_to_user(hidden: Sequence[str], shown: Sequence[str]) -> str | None:
    """For root: the owner of the workspace, whom the command runs as, cannot be shown it."""
    from sandboxd_client.cli.hints.root import account, closed_folder, user_inside

    uid = user_inside(shown[0]) if shown else 0
    for at in hidden:
        folder = closed_folder(at, uid)
        if folder is not None:
            return (
                f"on this machine it is {one_line(at)}, which cannot be shown: {one_line(folder)} "
                f"does not let {account(uid)} through, whom the command runs as. Install it where "
                f"{account(uid)} can reach it"
            )
    return None


def _hidden(program: str, shown: Sequence[str]) -> list[str]:
    visible = (*_SYSTEM, *map(os.path.realpath, shown))
    return [at for at in _steps(program) if not any(_within(at, one) for one in visible)]


def _steps(path: str) -> Iterator[str]:
    """The program, and each program that it is a link to."""
    for _ in range(_MOST_STEPS):
        folder, name = os.path.split(os.path.abspath(path))
        at = os.path.join(os.path.realpath(folder), name)
        yield at
        if not os.path.islink(at):
            return
        path = os.path.join(os.path.dirname(at), os.readlink(at))


def _whole(program: str) -> str:
    """The folder that it needs: of the installation where it has one of its own."""
    folder = os.path.dirname(program)
    prefix = os.path.dirname(folder)
    home = os.path.realpath(os.path.expanduser("~"))
    own = any(os.path.exists(os.path.join(prefix, name)) for name in ("pyvenv.cfg", "lib"))
    if os.path.basename(folder) == "bin" and own and not _within(home, prefix):
        return prefix if os.path.basename(prefix) not in (".local", "local") else folder
    return program if _within(home, folder) else folder


def _is_tool(program: str) -> bool:
    """Whether it is a program in a folder of programs, and in no folder of settings."""
    parts = program.split(os.sep)
    plain = all(not part.startswith(".") or part in _TOOLS for part in parts)
    runs = os.path.isfile(program) and os.access(program, os.X_OK)
    return plain and runs and parts[-2:-1] == ["bin"]


def _within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


def _first_line(path: str) -> str:
    """What the first line of a script names; empty for another program."""
    if not os.path.isfile(path):
        return ""
    try:
        with open(path, "rb") as file:
            line = file.readline(256)
    except OSError:
        return ""
    words = line[2:].split() if line.startswith(b"#!") else []
    return os.fsdecode(words[0]) if words else ""
