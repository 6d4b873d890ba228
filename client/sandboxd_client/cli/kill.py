"""`sandboxctl kill ID…`: end executions with all they started, or send them a signal."""

from __future__ import annotations

from sandboxd_client.cli import ids
from sandboxd_client.cli.connect import connect, print_json
from sandboxd_client.cli.parse import Options, UsageError
from sandboxd_client.cli.plain_text import one_line
from sandboxd_client.cli.screen import fail, say
from sandboxd_proto.errors import NotFound, SandboxdError


def main(options: Options) -> int:
    named = options.one("--signal")
    signal = None if named is None else signal_of(named)
    code = 0
    with ids.connect(options) as client:
        for typed in options.operands:
            execution_id = typed
            try:
                execution_id = ids.execution_id(client, typed)
                if signal is None:
                    client.execution_cancel(execution_id)
                    if not options.has("--json") and not options.has("--quiet"):
                        say(f"ended {one_line(execution_id)}")
                else:
                    # The connection that sees every execution may end them, and no more.
                    with connect(options) as sender:
                        sender.execution_signal(execution_id, signal)
            except SandboxdError as raised:
                error = raised
                if isinstance(error, NotFound) and ids.has_ended(client, execution_id):
                    error = NotFound(f"{typed!r} has ended already", remedy="see sandboxctl logs")
                code = fail(error, json=options.has("--json"), options=options)
    if options.has("--json") and not code:
        print_json({})
    return code


def signal_of(text: str) -> int | str:
    """15, TERM, SIGTERM and term are the same."""
    if text.isascii() and text.isdigit():
        return int(text)
    name = text.upper().removeprefix("SIG")
    if not name.isalnum():
        raise UsageError(f"--signal cannot be {text!r}", "write a number or a name like TERM")
    return name
