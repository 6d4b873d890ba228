"""`sandboxctl explain`: run a command once, and say what it needs that it may not have."""

from __future__ import annotations

import os
import sys
from typing import Any

assert sys.platform != "win32"

from sandboxd_client.cli import outcome  # noqa: E402 - after the platform is known
from sandboxd_client.cli.execute import (  # noqa: E402
    Left,
    attempt,
    request,
    tell_surprises,
    wants_pty,
)
from sandboxd_client.cli.explanation_text import manifest_file, report  # noqa: E402
from sandboxd_client.cli.finish_run import advice, exit_like_command  # noqa: E402
from sandboxd_client.cli.hints.wider_workspace import after_explain  # noqa: E402
from sandboxd_client.cli.parse import Options, UsageError  # noqa: E402
from sandboxd_client.cli.plain_text import quote  # noqa: E402
from sandboxd_client.cli.run import connection, take_command  # noqa: E402
from sandboxd_client.cli.screen import REFUSED, put, say, say_denial, write  # noqa: E402
from sandboxd_client.cli.streams import Streams  # noqa: E402
from sandboxd_client.cli.table import EXPLAIN  # noqa: E402
from sandboxd_client.cli.workspace import resolve  # noqa: E402


def main(options: Options) -> int:
    take_command(options, EXPLAIN)
    target = options.one("--write-manifest")
    if target is not None and os.path.isdir(resolve(target)):
        raise UsageError(f"--write-manifest {target}: that is a folder", "name a file")
    try:
        result = _run(options)
    except Left as left:
        return left.ended()
    explanation = result.get("explanation")
    if not isinstance(explanation, dict):
        say("error: nothing was recorded: the backend of this daemon cannot explain")
        return REFUSED
    _show(options, result, explanation)
    if target is not None:
        _store(resolve(target), manifest_file(explanation, options.operands[0]))
        if not options.has("--quiet"):
            say(f"wrote {target}; use it: sandboxctl run --manifest {quote(target)} -- …")
    return exit_like_command(result)


def _run(options: Options) -> dict[str, Any]:
    """Its output goes through the daemon, which reads what the command says about refusals."""
    pty = wants_pty(options, os.isatty(0) and os.isatty(1))
    streams = Streams(pty=pty, input=True, output=False, merge=not options.has("--json"))
    params = request(options, streams)
    tell_surprises(options, params)
    sock = connection(options)
    try:
        return attempt(sock, {**params, "explain": True}, streams)
    finally:
        sock.close()


def _show(options: Options, result: dict[str, Any], explanation: dict[str, Any]) -> None:
    if options.has("--json"):
        from sandboxd_client.jsontext import dumps, printable

        put(printable(dumps(result)) + b"\n")
    elif not options.has("--quiet"):
        hints, lines = advice(options, result), outcome.beside_explanation(result)
        failed = outcome.exit_code(result) != 0
        write(report(explanation, failed=failed, told=bool(hints or lines)))
        for line in lines:
            say_denial(line)
        for line in hints:
            say(line)
        wider = after_explain(options, explanation)
        if wider is not None and f"hint: {wider}" not in hints:
            say(f"hint: {wider}")


def _store(path: str, text: str) -> None:
    """Whole or not at all: a manifest that is cut off in the middle allows something else."""
    draft = f"{path}.{os.getpid()}.new"
    try:
        with open(draft, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(draft, path)
    except OSError as error:
        reason = f"{path} cannot be written: {error.strerror}"
        raise UsageError(reason, "name another file") from None
