"""`sandboxctl run`: behave like the command itself, in a sandbox."""

from __future__ import annotations

import os
import sys

assert sys.platform != "win32"

from sandboxd_client.autostart import open_connection  # noqa: E402 - after the platform is known
from sandboxd_client.cli import outcome  # noqa: E402
from sandboxd_client.cli.input import Input  # noqa: E402
from sandboxd_client.cli.live import RUN_S, LiveDenials  # noqa: E402
from sandboxd_client.cli.output import TerminalOutput  # noqa: E402
from sandboxd_client.cli.parse import Options, UsageError, no_command_error, parse  # noqa: E402
from sandboxd_client.cli.relay import Left, Relay  # noqa: E402
from sandboxd_client.cli.request import DEFAULT_PRESET, in_sandbox, policy  # noqa: E402
from sandboxd_client.cli.screen import REFUSED, fail, put, say, say_denial  # noqa: E402
from sandboxd_client.cli.streams import Streams  # noqa: E402
from sandboxd_client.cli.table import RUN, SANDBOX_RUN  # noqa: E402
from sandboxd_client.cli.terminal import is_terminal, size  # noqa: E402

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket
    from collections.abc import Collection
    from typing import Any

    from sandboxd_client.cli.raw_mode import RawMode
    from sandboxd_client.cli.table import CommandSpec

_ADVISED = ("git", "sh", "bash")  # programs that there are hints for also when they succeed


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
        try:
            return _with_or_without_terminal(options)
        except Exception as error:
            return _again_if_permitted(options, error)
    except BrokenPipeError:
        return 141
    except UnicodeEncodeError:
        say("error: an argument, path or variable is not UTF-8, which JSON cannot carry")
        return REFUSED
    except Exception as error:
        json = options is not None and options.has("--json")
        return fail(error, json=json, usage_code=REFUSED, options=options)


def _again_if_permitted(options: Options, error: Exception) -> int:
    from sandboxd_client.cli.permitted_timeout import take_permitted_timeout

    take_permitted_timeout(options, error)
    return _with_or_without_terminal(options)


def _with_or_without_terminal(options: Options) -> int:
    """A terminal that was not asked for is left out where the backend has none."""
    try:
        return run(options)
    except Exception as error:
        refused = getattr(error, "kind", None), getattr(error, "field", None)
        if refused != ("PolicyNotSupported", "pty") or options.has("--pty"):
            raise
    if not options.has("--quiet"):
        say("this backend has no terminals: the command gets none, and no input")
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    return run(options)


def run(options: Options) -> int:
    _take_line(options)
    if options.has("--detach"):
        from sandboxd_client.cli.detach import detach

        return detach(options, connection)
    if options.has("--name"):
        raise UsageError("--name is for a detached command", "add --detach")
    if options.has("--ask") and not is_terminal(0):
        raise UsageError(
            "--ask asks on a terminal, and stdin is none",
            "leave it out, and decide with `sandboxctl approve` in another terminal",
        )
    # What is left running in a sandbox that lives on must neither delay the reader of our output
    # nor be ended by SIGPIPE later: there the daemon takes the output, and drains it afterwards.
    fresh = not options.has("--sandbox")
    streams = Streams(
        pty=wants_pty(options, is_terminal(0) and is_terminal(1)),
        input=fresh,
        output=fresh and not options.has("--json"),
    )
    params = request(options, pty=streams.pty, stdin_open=streams.forwards_input)
    if params.get("preset") == DEFAULT_PRESET:
        _refuse_half_work(options)
    sock = connection(options)
    live = None
    if not options.has("--quiet"):
        live = LiveDenials(
            after_s=RUN_S, claims=False, raw=streams.raw, given=options.hosts,
            typed=options.typed_in_sandbox,
        )  # fmt: skip
    try:
        if "sandbox" in params:
            from sandboxd_client.cli.prefix import find_sandbox

            find_sandbox(sock, params)
        if _names_session(options):
            from sandboxd_client.cli.join_session import join_session

            join_session(sock, options, params.get("workspace"))
        if not options.has("--quiet") and not options.has("--json"):
            _note_missing(options)
        ask = options.has("--ask")
        result = attempt(sock, params, streams, live=live, ask=ask)
        while ask and streams.raw and result.get("widening") and _is_allowed_here(result, options):
            params["execution_id"] = new_id()
            result = attempt(sock, params, streams, live=live, ask=ask)
    except Left as left:
        return left.code
    finally:
        sock.close()
    if options.has("--manifest") and "cwd" not in params and not options.has("--quiet"):
        say("it started in /: the manifest shows nothing of this folder; --read . would")
    return report(result, options, live.told if live is not None else ())


def _take_line(options: Options) -> None:
    """`-c LINE` is `-- sh -c LINE`; further words are its $0, $1, …"""
    take_line(options)
    if not options.operands:
        raise no_command_error(RUN, options)


def take_line(options: Options) -> None:
    line = options.one("--command")
    if line is not None and options.operands[:3] != ["sh", "-c", line]:
        options.operands[:0] = ["sh", "-c", line]


def attempt(
    sock: socket,
    params: dict[str, Any],
    streams: Streams,
    *,
    keys_kill: bool = True,
    live: LiveDenials | None = None,
    ask: bool = False,
) -> dict[str, Any]:
    """The result of `execute` with our own streams. Raises what `Relay.run` raises."""
    relay = Relay(
        sock,
        params["execution_id"],
        output=TerminalOutput(),
        input=Input(raw=streams.raw) if streams.forwards_input else None,
        raw=_raw_mode() if streams.raw else None,
        pty=streams.pty,
        streams="stream" in params,
        own=streams,
        keys_kill=keys_kill,
        live=live,
        ask=ask,
    )
    return relay.run({**params, **streams.params()})


def _raw_mode() -> RawMode:
    from sandboxd_client.cli.raw_mode import RawMode

    return RawMode(0)


def _names_session(options: Options) -> bool:
    if options.has("--session") or options.has("--mode") or options.has("--plan"):
        return True
    return bool(os.environ.get("SANDBOXD_SESSION"))


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


def request(options: Options, *, pty: bool, stdin_open: bool) -> dict[str, Any]:
    """The params of `execute`."""
    params = in_sandbox(options) if options.has("--sandbox") else policy(options, os.environ)
    params = streaming(params, options.operands, pty=pty, stdin_open=stdin_open)
    if options.has("--json"):
        del params["stream"]
        params["capture"] = True
    return params


def streaming(
    params: dict[str, Any], argv: list[str], *, pty: bool, stdin_open: bool
) -> dict[str, Any]:
    """The params of an `execute` that tells events and is connected to our own streams."""
    params["argv"] = argv
    params["execution_id"] = new_id()
    params["stream"] = True
    if stdin_open:
        params["stdin_open"] = True
    if pty:
        rows, cols = size()
        params["pty"] = {"rows": rows, "cols": cols}
    return params


def new_id() -> str:
    return f"ctl-{os.getpid()}-{os.urandom(6).hex()}"


def _is_allowed_here(result: dict[str, Any], options: Options) -> bool:
    from sandboxd_client.cli.approval import is_allowed_here

    return is_allowed_here(options.one("--socket") or _default_socket(), result)


def report(result: dict[str, Any], options: Options, told: Collection[str] = ()) -> int:
    """`told`: lines that were printed while it ran."""
    if options.has("--json"):
        from sandboxd_client.jsontext import dumps, printable

        put(printable(dumps(result)) + b"\n")
    elif not options.has("--quiet"):
        hints, typed = _advice(options, result), options.typed_in_sandbox
        for line in outcome.remarks(result, given=options.hosts, hints=hints, typed=typed):
            if line not in told:
                say_denial(line)
        if result.get("widening"):
            _offer(options, result)
        for line in hints:
            say(line)
    return outcome.exit_code(result)


def _offer(options: Options, result: dict[str, Any]) -> None:
    from sandboxd_client.cli.approval import offer

    line = offer(result, own_session=options.has("--mode") or options.has("--plan"))
    if line is not None:
        say(line)


def _refuse_half_work(options: Options) -> None:
    if "git" not in options.operands[0] and "git" not in options.operands[-1]:
        return
    from sandboxd_client.cli.advice import refuse_half_work

    refuse_half_work(options)


def _is_advised(options: Options) -> bool:
    words = options.operands
    return bool(words) and (words[0].rpartition("/")[2] in _ADVISED or "install" in words)


def _note_missing(options: Options) -> None:
    if not _is_advised(options):
        return
    from sandboxd_client.cli.advice import note_missing

    note_missing(options)


def _advice(options: Options, result: dict[str, Any]) -> list[str]:
    if not options.operands or not (_is_advised(options) or outcome.exit_code(result)):
        return []
    from sandboxd_client.cli.advice import advise

    return advise(options, result)


def wants_pty(options: Options, have_terminal: bool) -> bool:
    if options.has("--no-pty") or options.has("--json"):
        return False
    return options.has("--pty") or have_terminal


def connection(options: Options) -> socket:
    def started() -> None:
        from sandboxd_client.cli.connect import say_started

        say_started(options)

    def note(text: str) -> None:
        from sandboxd_client.cli.connect import say_once

        say_once(options, text)

    return open_connection(
        options.one("--socket") or _default_socket(),
        client="sandboxctl",
        may_start=not options.has("--no-autostart"),
        note=note,
        started=started,
    )


def _default_socket() -> str:
    from sandboxd_proto.locations import default_socket

    return default_socket()
