"""`sandboxctl`: one module for each subcommand, imported only when it is the one that is called.

`sandboxctl run -- true` should cost little more than Python's own start, so nothing on its way
imports argparse, re, enum, typing, msgspec or anyio.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

USAGE_ERROR = 2


def main(argv: Sequence[str] | None = None) -> int:
    """The entry point: the exit code of the subcommand."""
    from sandboxd_client.cli.screen import fail

    _fill_standard_descriptors()
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        code = _dispatch(arguments)
        if argv is None and arguments[:1] == ["run"]:
            _leave(code)
        return code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        return _broken_pipe()
    except Exception as error:
        return fail(error, json="--json" in arguments)


def _dispatch(arguments: list[str]) -> int:
    name, rest = (arguments[0], arguments[1:]) if arguments else ("--help", [])
    if name == "run" and sys.platform != "win32":
        from sandboxd_client.cli import run

        return run.main(rest)
    if name == "sandbox" and rest[:1] == ["run"] and sys.platform != "win32":
        from sandboxd_client.cli import run
        from sandboxd_client.cli.table import SANDBOX_RUN

        return run.main(rest[1:], SANDBOX_RUN)
    if name in ("--version", "-V"):
        from sandboxd_client import __version__

        print(f"sandboxctl {__version__}")
        return 0
    if name in ("--help", "-h", "help"):
        from sandboxd_client.cli.help import overview

        print(overview(), end="")
        return 0 if arguments else USAGE_ERROR
    return _other(name, rest)


def _leave(code: int) -> None:
    """Without taking the interpreter down piece by piece, which costs a tenth of a short run."""
    if sys.stdout is not None:
        sys.stdout.flush()
    os._exit(code)


def _fill_standard_descriptors() -> None:
    """A closed 0, 1 or 2 would be given to the next socket, and output would be written there."""
    for fd in (0, 1, 2):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number is this one


def _other(name: str, rest: list[str]) -> int:
    from importlib import import_module

    from sandboxd_client.cli.parse import UsageError, parse
    from sandboxd_client.cli.table import COMMANDS

    module, action = name, "main"
    if name == "sandbox":
        action = rest.pop(0) if rest else "--help"
        name = f"{name} {action}"
        if action in ("--help", "-h"):
            from sandboxd_client.cli.help import group

            print(group(module), end="")
            return 0
    command = COMMANDS.get(name) if " " not in module else None
    if name in ("run", "sandbox run", "shell", "explain") and sys.platform == "win32":
        raise UsageError(f"{name} needs a Unix system", "use a client library here")
    if command is None:
        from sandboxd_client.cli.help import unknown_command

        raise UsageError(f"there is no command {name!r}", unknown_command(name))
    options = parse(command, rest)
    if options.help:
        from sandboxd_client.cli.help import page

        print(page(command), end="")
        return 0
    perform = getattr(import_module(f"sandboxd_client.cli.{module}"), action)
    code: int = perform(options)
    if sys.stdout is not None:
        sys.stdout.flush()
    return code


def _broken_pipe() -> int:
    """Whoever read our output left: end like a program that SIGPIPE ended, without a traceback."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 141
