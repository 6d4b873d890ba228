"""`sandboxctl`: one module for each subcommand, imported only when that subcommand is called.

`sandboxctl run -- true` should cost little more than Python's own start, so none of its modules
imports argparse, re, enum, typing, msgspec or anyio, and the daemon works while they are imported:
`run` connects, `execute` makes the request while that is answered, `finish_run` comes when it is
sent.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

USAGE_ERROR = 2


def main(argv: Sequence[str] | None = None) -> int:
    """The entry point: the exit code of the subcommand."""
    _fill_standard_descriptors()
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        code = _dispatch(arguments)
        if argv is None and arguments[:1] == ["run"]:
            _leave(code)
        return code
    except KeyboardInterrupt as error:
        return _interrupted(error) if argv is None else 130
    except BrokenPipeError:
        return _broken_pipe()
    except Exception as error:
        from sandboxd_client.cli.screen import fail

        return fail(error, json="--json" in arguments)


def _dispatch(arguments: list[str]) -> int:
    name, rest = (arguments[0], arguments[1:]) if arguments else ("--help", [])
    if name == "run":
        return int(_run_command().main(rest))
    if name == "sandbox" and rest[:1] == ["run"]:
        from sandboxd_client.cli.flags import SANDBOX_RUN

        return int(_run_command().main(rest[1:], SANDBOX_RUN))
    if name in ("--version", "-V"):
        from sandboxd_client import __version__

        print(f"sandboxctl {__version__}")
        return 0
    if name in ("--help", "-h"):
        from sandboxd_client.cli.help import overview

        print(overview(), end="")
        return 0 if arguments else USAGE_ERROR
    if name == "__complete":
        from sandboxd_client.cli.complete import main as complete

        return complete(rest)
    return _other(name, rest)


if sys.platform == "win32":

    def _run_command() -> ModuleType:
        from sandboxd_client.cli import run_windows

        return run_windows

    def _interrupted(error: KeyboardInterrupt) -> int:
        return 130

else:

    def _run_command() -> ModuleType:
        from sandboxd_client.cli import run

        return run

    def _interrupted(error: KeyboardInterrupt) -> int:
        from sandboxd_client.cli import signals

        try:
            if sys.stdout is not None:
                sys.stdout.flush()
        except OSError:
            return 130
        return signals.die(error)


def _leave(code: int) -> None:
    """Skips the interpreter's shutdown, which costs a tenth of a short run."""
    if sys.platform == "win32" and code > 0x7FFFFFFF:
        code -= 1 << 32  # Python takes the 32 bits of an NTSTATUS as a signed number only
    if sys.stdout is not None:
        sys.stdout.flush()
    os._exit(code)


def _fill_standard_descriptors() -> None:
    """A closed 0, 1 or 2 would become the next socket's number, and output would go there. Writing
    to a stdout that was closed fails (EBADF), as it does without this."""
    for fd in (0, 1, 2):
        try:
            os.fstat(fd)
        except OSError:  # the lowest free number is this one
            os.open(os.devnull, os.O_RDONLY if fd == 1 else os.O_RDWR)


def _other(name: str, rest: list[str]) -> int:
    from importlib import import_module

    from sandboxd_client.cli.parse import UsageError, parse
    from sandboxd_client.cli.table import COMMANDS, GROUPS

    module, action = name, "main"
    if name in GROUPS:
        action = rest.pop(0) if rest else "--help"
        name = f"{name} {action}"
        if action in ("--help", "-h"):
            from sandboxd_client.cli.help import group

            print(group(module), end="")
            return 0
    command = COMMANDS.get(name) if " " not in module else None
    if sys.platform == "win32":
        from sandboxd_client.cli.unsupported_windows import refuse

        refuse(name)
        module = {"attach": "attach_windows"}.get(module, module)
    if command is None:
        from sandboxd_client.cli.help import unknown_command

        raise UsageError(f"there is no command {name!r}", unknown_command(name))
    from sandboxd_client.cli.screen import REFUSED, fail

    # A command that runs one has the exit codes of `run`: 2 may be the command's own.
    usage_code = REFUSED if command.greedy else USAGE_ERROR
    try:
        options = parse(command, rest)
    except UsageError as error:
        return fail(error, json="--json" in rest, usage_code=usage_code)
    if options.help:
        from sandboxd_client.cli.help import page

        print(page(command), end="")
        return 0
    perform = getattr(import_module(f"sandboxd_client.cli.{module}"), action)
    try:
        code: int = perform(options)
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        raise
    except Exception as error:
        return fail(error, json=options.has("--json"), usage_code=usage_code, options=options)
    return code


def _broken_pipe() -> int:
    """The reader of our output has left: end like a program that SIGPIPE killed."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 141
