"""`sandboxctl run`: behave like the command itself, in a sandbox."""

from __future__ import annotations

import os
import sys

assert sys.platform != "win32"

from sandboxd_client.autostart import open_connection  # noqa: E402 - after the platform is known
from sandboxd_client.cli import outcome  # noqa: E402
from sandboxd_client.cli.input import Input  # noqa: E402
from sandboxd_client.cli.output import Output  # noqa: E402
from sandboxd_client.cli.parse import Options, UsageError, parse  # noqa: E402
from sandboxd_client.cli.relay import Left, Relay  # noqa: E402
from sandboxd_client.cli.request import joined, policy  # noqa: E402
from sandboxd_client.cli.screen import REFUSED, fail, put, say  # noqa: E402
from sandboxd_client.cli.streams import Streams  # noqa: E402
from sandboxd_client.cli.table import RUN, SANDBOX_RUN  # noqa: E402
from sandboxd_client.cli.terminal import RawMode, is_terminal, size  # noqa: E402

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket
    from typing import Any

    from sandboxd_client.cli.table import Command


def main(arguments: list[str], command: Command = RUN) -> int:
    options = None
    try:
        options = parse(command, arguments)
        if options.help:
            from sandboxd_client.cli.help import page

            print(page(command), end="")
            return 0
        if command is SANDBOX_RUN:
            _take_id(options)
        return run(options)
    except BrokenPipeError:
        return 141
    except UnicodeEncodeError:
        say("error: an argument, path or variable is not UTF-8, which JSON cannot carry")
        return REFUSED
    except Exception as error:
        return fail(error, json=options is not None and options.has("--json"), usage_code=REFUSED)


def run(options: Options) -> int:
    # What is left running in a sandbox that lives on must neither hold up whoever reads our output
    # nor be ended by SIGPIPE later: there the daemon takes the output, and drains it afterwards.
    fresh = not options.has("--sandbox")
    streams = Streams(
        pty=wants_pty(options, is_terminal(0) and is_terminal(1)),
        input=fresh,
        output=fresh and not options.has("--json"),
    )
    blind = streams.blind
    params = request(options, pty=streams.pty, stdin_open=streams.forwards_input)
    sock = connection(options)
    try:
        try:
            result = attempt(sock, params, streams)
        except Exception as error:
            if not streams.passes_output or not _must_be_counted(error):
                raise
            blind = False
            result = attempt(sock, params, Streams(pty=False, input=fresh, output=False))
    except Left as left:
        return left.code
    finally:
        sock.close()
    return report(result, options, blind=blind)


def attempt(
    sock: socket, params: dict[str, Any], streams: Streams, *, keys_kill: bool = True
) -> dict[str, Any]:
    """The result of `execute` with our own streams. Raises what `Relay.run` raises."""
    relay = Relay(
        sock,
        params["execution_id"],
        output=Output(),
        input=Input(raw=streams.raw) if streams.forwards_input else None,
        raw=RawMode(0) if streams.raw else None,
        pty=streams.pty,
        streams="stream" in params,
        own=streams,
        keys_kill=keys_kill,
    )
    return relay.run({**params, **streams.params()})


def _must_be_counted(error: Exception) -> bool:
    """The daemon's ceiling limits the output, which it cannot count in a pipe of ours."""
    return (
        getattr(error, "kind", None) == "PolicyNotSupported"
        and getattr(error, "field", None) == "max_output_bytes"
    )


def _take_id(options: Options) -> None:
    """`sandbox run ID [--] COMMAND` is `run --sandbox ID -- COMMAND`."""
    options.add("--sandbox", options.operands.pop(0))
    if options.operands[:1] == ["--"]:
        del options.operands[0]
    if not options.operands:
        raise UsageError(
            "sandbox run needs a command", "write sandboxctl sandbox run ID -- COMMAND"
        )


def request(options: Options, *, pty: bool, stdin_open: bool) -> dict[str, Any]:
    """The params of `execute`."""
    params = joined(options) if options.has("--sandbox") else policy(options, os.environ)
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
    params["execution_id"] = f"ctl-{os.getpid()}-{os.urandom(6).hex()}"
    params["stream"] = True
    if stdin_open:
        params["stdin_open"] = True
    if pty:
        rows, cols = size()
        params["pty"] = {"rows": rows, "cols": cols}
    return params


def report(result: dict[str, Any], options: Options, *, blind: bool = False) -> int:
    if options.has("--json"):
        from sandboxd_client.jsontext import dumps

        put(dumps(result) + b"\n")
    elif not options.has("--quiet"):
        given = ",".join(options.all("--net")).split(",")
        for line in outcome.remarks(result, blind=blind, given=given):
            say(line)
    return outcome.exit_code(result)


def wants_pty(options: Options, have_terminal: bool) -> bool:
    if options.has("--no-pty") or options.has("--json"):
        return False
    return options.has("--pty") or have_terminal


def connection(options: Options) -> socket:
    return open_connection(
        options.one("--socket") or _default_socket(),
        client="sandboxctl",
        may_start=not options.has("--no-autostart"),
        note=(lambda text: None) if options.has("--quiet") else say,
    )


def _default_socket() -> str:
    from sandboxd_proto.locations import default_socket

    return default_socket()
