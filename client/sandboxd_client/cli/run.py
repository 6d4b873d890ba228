"""`sandboxctl run`: behave like the command itself, in a sandbox."""

from __future__ import annotations

import os
import sys

assert sys.platform != "win32"

from sandboxd_client.autostart import (  # noqa: E402 - after the platform is known
    begin_connection,
    open_connection,
)
from sandboxd_client.cli.flags import RUN, SANDBOX_RUN  # noqa: E402
from sandboxd_client.cli.parse import Options, UsageError, no_command_error, parse  # noqa: E402

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket

    from sandboxd_client.cli.flags import CommandSpec


def main(arguments: list[str], command: CommandSpec = RUN) -> int:
    options = None
    try:
        options = parse(command, arguments)
        if command is SANDBOX_RUN and not options.help:
            _take_id(options)
        if options.help:
            from sandboxd_client.cli.help import page

            print(page(command), end="")
            return 0
        return _with_or_without_terminal(options)
    except BrokenPipeError:
        return 141
    except Exception as error:
        return _fail(error, options)


def _fail(error: Exception, options: Options | None) -> int:
    from sandboxd_client.cli.screen import REFUSED, fail, say

    if isinstance(error, UnicodeEncodeError):
        message, at = error.object, error.start  # the request's JSON
        word = message[message.rfind('"', 0, at) + 1 : message.find('"', at)]
        say(f"error: {ascii(os.fsencode(word))[1:]} is not UTF-8, which JSON cannot carry")
        say("hint: a shell inside can find the file: sandboxctl run -c 'cat ./*.txt'; or use stdin")
        return REFUSED
    json = options is not None and options.has("--json")
    return fail(error, json=json, usage_code=REFUSED, options=options)


def _with_or_without_terminal(options: Options) -> int:
    """A terminal that was not asked for is left out where the backend has none, or would print
    there what is redirected."""
    try:
        return run(options)
    except Exception as error:
        kind, field = getattr(error, "kind", None), getattr(error, "field", None)
        if kind != "PolicyNotSupported" or field not in ("pty", "pty.stderr"):
            raise
        if field == "pty.stderr":
            return _with_one_output(options)
        if options.has("--pty"):
            raise
    if not options.has("--quiet"):
        from sandboxd_client.cli.screen import say

        say("this backend has no terminals: the command gets none, and no input")
    _read_nothing()
    return run(options)


def _read_nothing() -> None:
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)


def _with_one_output(options: Options) -> int:
    """What is redirected comes before colours and keys, unless a terminal was asked for."""
    asked = options.has("--pty")
    if not asked:
        options.add("--no-pty", "")
    if not options.has("--quiet"):
        from sandboxd_client.cli.screen import say

        what = "what the command writes to stderr is in stdout" if asked else "the command has none"
        say(f"a terminal of this backend cannot leave out your redirected stderr: {what}")
    return run(options, stderr=False)


def run(options: Options, *, stderr: bool = True) -> int:
    take_command(options, RUN)
    if options.has("--detach"):
        from sandboxd_client.cli.detach import detach

        return detach(options, connection)
    if options.has("--name"):
        raise UsageError("--name is for a detached command", "add --detach")
    if options.has("--ask"):
        _check_asking(options)
    if options.has("--no-stdin"):
        _read_nothing()
    begun = begin_connection(socket_path(options), "sandboxctl")
    try:
        # What makes the request is imported while the daemon answers.
        from sandboxd_client.cli.execute import perform

        return perform(options, lambda: connection(options, begun), stderr=stderr)
    finally:
        if begun is not None:
            begun.close()


def _check_asking(options: Options) -> None:
    if options.has("--no-stdin"):
        raise UsageError("--ask reads your answers from stdin", "leave --no-stdin out")
    missing = "" if os.isatty(1) or os.isatty(2) else "neither stdout nor stderr is one"
    if not os.isatty(0):
        missing = "stdin is none"
    if missing:
        raise UsageError(
            f"--ask asks on a terminal, and {missing}",
            "leave it out, and decide with `sandboxctl approve` in another terminal",
        )


def take_command(options: Options, command: CommandSpec) -> None:
    """`-c LINE` is `-- sh -c LINE`; further words are its $0, $1, …"""
    take_line(options)
    if not options.operands:
        raise no_command_error(command, options)


def take_line(options: Options) -> None:
    line = options.one("--command")
    if line is not None and options.operands[:3] != ["sh", "-c", line]:
        options.operands[:0] = ["sh", "-c", line]


def _take_id(options: Options) -> None:
    """`sandbox run ID [--] COMMAND` is `run --sandbox ID -- COMMAND`; flags may follow the ID."""
    options.add("--sandbox", options.operands.pop(0))
    if options.operands[:1] == ["--"]:
        del options.operands[0]
    elif options.operands and options.operands[0].startswith("-"):
        options.merge(parse(SANDBOX_RUN, options.operands, needs_operand=False))
    if not (options.operands or options.has("--command") or options.help):
        raise UsageError(
            "sandbox run needs a command", "write sandboxctl sandbox run ID -- COMMAND"
        )


def connection(options: Options, begun: socket | None = None) -> socket:
    def started() -> None:
        from sandboxd_client.cli.connect import say_started

        say_started(options)

    def note(text: str) -> None:
        from sandboxd_client.cli.connect import say_once

        say_once(options, text)

    return open_connection(
        socket_path(options),
        client="sandboxctl",
        begun=begun,
        may_start=not options.has("--no-autostart"),
        note=note,
        started=started,
    )


def socket_path(options: Options) -> str:
    named = options.one("--socket")
    if named:
        return named
    from sandboxd_proto.locations import default_socket

    return default_socket()
