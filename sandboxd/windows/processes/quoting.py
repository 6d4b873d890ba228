"""An argument list to the one command line that Windows passes, and the environment to its block.

Pure. A program splits its command line itself; most do so by the rules of the C run-time, for which
`list2cmdline` quotes. A batch file is run by cmd, which follows other rules: arguments that it
would read as syntax are refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from subprocess import list2cmdline

from sandboxd.platform.windows.commands import MAX_UNITS, units

MAX_CMD_UNITS = 8_191  # of a line that cmd takes
_BATCH = (".bat", ".cmd")
_CMD_SYNTAX = re.compile(r'["%!^&|<>()\r\n\x00]')
_DEFAULT_EXTENSIONS = ".COM;.EXE;.BAT;.CMD"


class QuotingError(ValueError):
    """The arguments cannot be passed unchanged."""


def command_line(argv: Sequence[str]) -> str:
    for argument in argv:
        if "\0" in argument:
            raise QuotingError("an argument has a NUL character in it")
    line = list2cmdline(argv)
    if units(line) > MAX_UNITS:
        raise QuotingError(f"the command line is longer than {MAX_UNITS} characters")
    return line


def batch_line(shell: str, program: str, arguments: Sequence[str]) -> str:
    """For a batch file. cmd expands and splits before the batch file sees anything."""
    for argument in (program, *arguments):
        if _CMD_SYNTAX.search(argument):
            raise QuotingError(
                f"cmd, which runs the batch file {program}, would read {argument!r} as syntax"
            )
    quoted = " ".join(f'"{argument}"' for argument in (program, *arguments))
    line = f'"{shell}" /d /s /c "{quoted}"'
    if units(line) > MAX_CMD_UNITS:
        raise QuotingError(f"cmd takes a command line of at most {MAX_CMD_UNITS} characters")
    return line


def is_batch(program: str) -> bool:
    return program.lower().rstrip(". ").endswith(_BATCH)


def environment_block(pairs: Iterable[tuple[str, str]]) -> bytes:
    """Sorted by upper-cased name, UTF-16, ended by two NULs; never empty."""
    chosen = {name.upper(): (name, value) for name, value in pairs}
    text = "".join(f"{name}={value}\0" for _, (name, value) in sorted(chosen.items()))
    return ((text or "\0") + "\0").encode("utf-16-le", "surrogatepass")


def needed_pairs(
    pairs: Iterable[tuple[str, str]], system_root: str, folder: str
) -> tuple[tuple[str, str], ...]:
    """The manifest's pairs and what no program starts without; the manifest's win."""
    given = tuple(pairs)
    names = {name.upper() for name, _ in given}
    needed = (
        ("SystemRoot", system_root), ("SystemDrive", system_root[:2]), ("TEMP", folder),
        ("TMP", folder),
    )  # fmt: skip
    return (*given, *((name, value) for name, value in needed if name.upper() not in names))


def find_program(
    name: str, env: Iterable[tuple[str, str]], cwd: str, is_file: Callable[[str], bool]
) -> str | None:
    """The file that `name` means: in the manifest's PATH and PATHEXT, not in the daemon's.

    The current folder is not searched: a command's own files must not replace programs.
    """
    variables = {key.upper(): value for key, value in env}
    extensions = (variables.get("PATHEXT") or _DEFAULT_EXTENSIONS).split(";")
    if re.match(r"[A-Za-z]:[\\/]", name):
        folders = [""]
    elif "\\" in name or "/" in name:
        if name.startswith(("\\", "/")) or ":" in name:
            return None
        folders = [cwd.rstrip("\\") + "\\"]
    else:
        path = variables.get("PATH", "").split(";")
        absolute = [folder.strip('"') for folder in path]
        folders = [
            folder.rstrip("\\/") + "\\"
            for folder in absolute
            if re.match(r"[A-Za-z]:[\\/]", folder)
        ]
    suffixes = ["", *extensions] if "." in re.split(r"[\\/]", name)[-1] else extensions
    for folder in folders:
        for suffix in suffixes:
            candidate = folder + name.replace("/", "\\") + suffix
            if is_file(candidate):
                return candidate
    return None
