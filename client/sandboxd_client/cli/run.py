"""`sandboxctl run`: behave like the command itself, in a sandbox."""

from __future__ import annotations

import os
import sys

assert sys.platform != "win32"

from sandboxd_client.autostart import open_connection  # noqa: E402 - after the platform is known
from sandboxd_client.cli import outcome  # noqa: E402
from sandboxd_client.cli.input import Input, has_input  # noqa: E402
from sandboxd_client.cli.output import Output  # noqa: E402
from sandboxd_client.cli.parse import Options, parse  # noqa: E402
from sandboxd_client.cli.relay import Left, Relay  # noqa: E402
from sandboxd_client.cli.request import policy  # noqa: E402
from sandboxd_client.cli.screen import REFUSED, fail, put, say  # noqa: E402
from sandboxd_client.cli.table import RUN  # noqa: E402
from sandboxd_client.cli.terminal import RawMode, is_terminal, size  # noqa: E402

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket
    from typing import Any


def main(arguments: list[str]) -> int:
    options = None
    try:
        options = parse(RUN, arguments)
        if options.help:
            from sandboxd_client.cli.help import page

            print(page(RUN), end="")
            return 0
        return run(options)
    except BrokenPipeError:
        return 141
    except UnicodeEncodeError:
        say("error: an argument, path or variable is not UTF-8, which JSON cannot carry")
        return REFUSED
    except Exception as error:
        return fail(error, json=options is not None and options.has("--json"), usage_code=REFUSED)


def run(options: Options) -> int:
    as_json = options.has("--json")
    pty = _wants_pty(options, is_terminal(0) and is_terminal(1))
    forwards = has_input(0)
    params = request(options, pty=pty, stdin_open=forwards)
    with_terminal = pty and is_terminal(0)
    sock = _connection(options)
    try:
        relay = Relay(
            sock,
            params["execution_id"],
            output=Output(),
            input=Input(raw=with_terminal) if forwards else None,
            raw=RawMode(0) if with_terminal else None,
            pty=pty,
            streams=not as_json,
        )
        try:
            result = relay.run(params)
        except Left as left:
            return left.code
    finally:
        sock.close()
    return report(result, options)


def request(options: Options, *, pty: bool, stdin_open: bool) -> dict[str, Any]:
    """The params of `execute`."""
    params = policy(options, os.environ)
    params["argv"] = options.operands
    params["execution_id"] = f"ctl-{os.getpid()}-{os.urandom(6).hex()}"
    if options.has("--json"):
        params["capture"] = True
    else:
        params["stream"] = True
    if stdin_open:
        params["stdin_open"] = True
    if pty:
        rows, cols = size()
        params["pty"] = {"rows": rows, "cols": cols}
    return params


def report(result: dict[str, Any], options: Options) -> int:
    if options.has("--json"):
        from sandboxd_client.jsontext import dumps

        put(dumps(result) + b"\n")
    elif not options.has("--quiet"):
        for line in outcome.remarks(result):
            say(line)
    return outcome.exit_code(result)


def _wants_pty(options: Options, have_terminal: bool) -> bool:
    if options.has("--no-pty") or options.has("--json"):
        return False
    return options.has("--pty") or have_terminal


def _connection(options: Options) -> socket:
    return open_connection(
        options.one("--socket") or _default_socket(),
        client="sandboxctl",
        may_start=not options.has("--no-autostart"),
        note=(lambda text: None) if options.has("--quiet") else say,
    )


def _default_socket() -> str:
    from sandboxd_proto.locations import default_socket

    return default_socket()
