"""`execute` with our own streams: make the request, send it, and import what follows it while the
daemon starts the command."""

from __future__ import annotations

import os
import sys
import time

assert sys.platform != "win32"

from sandboxd_client.caller import Outgoing  # noqa: E402
from sandboxd_client.cli import signals  # noqa: E402 - after the platform is known
from sandboxd_client.cli.parse import Options  # noqa: E402
from sandboxd_client.cli.request import DEFAULT_PRESET, in_sandbox, policy  # noqa: E402
from sandboxd_client.cli.streams import Streams  # noqa: E402
from sandboxd_client.jsontext import dumps  # noqa: E402

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket
    from collections.abc import Callable
    from typing import Any

    from sandboxd_client.cli.live_denials import LiveDenials
    from sandboxd_client.cli.terminal_approver import Asker

    Hear = Callable[[], LiveDenials]

RESULT_ID = 1
NOT_WRITTEN = 1  # the exit code, as of programs of the system whose output cannot be written
LIVE_AFTER_S = 30.0  # denials of what ends sooner are told at its end, after all output
_SURPRISING = ("--workspace", "--env", "--env-pass", "--pty", "--manifest")
# Programs that there are hints for also when they succeed; servers do when they are interrupted.
_ADVISED = (
    "git", "sh", "bash", "dash", "zsh", "go", "uvicorn", "gunicorn", "hypercorn",
    "http-server",
)  # fmt: skip


_MOST_REPEATED = 4  # requests that met a folder which others change


class Left(Exception):
    """sandboxctl ends before the command's end was reported; `code` is its exit code."""

    def __init__(self, code: int) -> None:
        self.code = code

    def ended(self) -> int:
        """The exit code; dies where a signal of the user is the reason."""
        return signals.exit_like(self.code, self.code - 128)


def perform(options: Options, connect: Callable[[], socket], *, stderr: bool = True) -> int:
    """The exit code of the command. `stderr`: whether it may be apart from a terminal."""
    # What is left running in a sandbox that lives on must neither delay the reader of our output
    # nor be ended by SIGPIPE later: there the daemon takes the output, and drains it afterwards.
    fresh = not options.has("--sandbox")
    streams = Streams(
        pty=wants_pty(options, os.isatty(0) and os.isatty(1)),
        input=True,
        output=fresh and not options.has("--json"),
        stderr=stderr,
        merge=not options.has("--json"),
        keeps=_counts_lines(options),
    )
    params = request(options, streams)
    if params.get("preset") == DEFAULT_PRESET:
        _refuse_half_work(options)
    tell_surprises(options, params)
    sock = connect()
    made: list[LiveDenials] = []
    due_s = time.monotonic() + LIVE_AFTER_S

    def hear() -> LiveDenials:
        """Loaded for the first denial."""
        from sandboxd_client.cli.live_denials import LiveDenials

        if not made:
            made.append(LiveDenials(options, due_s))
        return made[0]

    live = None if options.has("--quiet") else hear
    try:
        if "sandbox" in params:
            from sandboxd_client.cli.prefix import find_sandbox

            find_sandbox(sock, params)
        if _names_session(options):
            from sandboxd_client.cli.join_session import join_session

            join_session(sock, options, params.get("workspace"))
        if not options.has("--quiet") and not options.has("--json"):
            _note_missing(options)
        ask = _asker(sock, options)
        result = _until_it_runs(sock, params, streams, live=live, ask=ask)
        while ask is not None and streams.repeatable and ask.allows(result):
            params["execution_id"] = new_id()
            result = attempt(sock, params, streams, live=live, ask=ask)
    except Left as left:
        return left.ended()
    finally:
        sock.close()
    from sandboxd_client.cli.finish_run import report

    options.printed, options.errors = streams.printed or b"", streams.errors
    in_root = not {"cwd", "workspace", "sandbox"} & params.keys() and os.getcwd() != "/"
    if in_root and not options.has("--quiet"):
        from sandboxd_client.cli.screen import say

        shows = "the manifest shows" if options.has("--manifest") else "it shows"
        say(f"it started in /: {shows} nothing of this folder; --read . would")
    return report(result, options, made[0].told.values() if made else ())


def _until_it_runs(
    sock: socket,
    params: dict[str, Any],
    streams: Streams,
    *,
    live: Hear | None,
    ask: Asker | None,
) -> dict[str, Any]:
    """Once more where others removed what a sandbox was to be made of; nothing has run then. Not
    where our streams are the daemon's already."""
    for _ in range(_MOST_REPEATED):
        try:
            return attempt(sock, params, streams, live=live, ask=ask)
        except Exception as error:
            facts = getattr(error, "facts", None) or {}
            if not facts.get("again") or not streams.repeatable:
                raise
        params["execution_id"] = new_id()
    return attempt(sock, params, streams, live=live, ask=ask)


def attempt(
    sock: socket,
    params: dict[str, Any],
    streams: Streams,
    *,
    keys_kill: bool = True,
    live: Hear | None = None,
    ask: Asker | None = None,
) -> dict[str, Any]:
    """The result of `execute` with our own streams. Raises the daemon's error, ConnectionLost or
    Left. `live`: gets denials while the command runs."""
    try:
        with signals.Signals() as arrived:
            outgoing = Outgoing(sock, streams.descriptors)
            outgoing.add(message("execute", {**params, **streams.params()}, RESULT_ID))
            outgoing.flush()
            from sandboxd_client.cli.finish_run import start_relay

            relay = start_relay(outgoing, params, streams, keys_kill=keys_kill, live=live, ask=ask)
            return relay.until_answer(arrived)
    finally:
        streams.close()


def message(method: str, params: dict[str, Any], id: int) -> bytes:
    return dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params}) + b"\n"


def wants_pty(options: Options, have_terminal: bool) -> bool:
    if options.has("--no-pty") or options.has("--json"):
        return False
    return options.has("--pty") or have_terminal


def request(options: Options, streams: Streams) -> dict[str, Any]:
    """The params of `execute`."""
    if options.has("--sandbox"):
        params = in_sandbox(options)
    else:
        params = policy(options, os.environ, terminal=streams.pty)
    params = streaming(params, options.operands, streams)
    if options.has("--json"):
        del params["stream"]
        params["capture"] = True
    return params


def streaming(params: dict[str, Any], argv: list[str], streams: Streams) -> dict[str, Any]:
    """The params of an `execute` that tells events and is connected to our own streams."""
    params["argv"] = argv
    params["execution_id"] = new_id()
    params["stream"] = True
    if streams.forwards_input:
        params["stdin_open"] = True
    terminal = streams.terminal()
    if terminal is not None:
        params["pty"] = terminal
    return params


def _counts_lines(options: Options) -> bool:
    """`git merge` and `git pull`, whose numbers can be wrong: the hint after them needs these."""
    if not is_advised(options) or options.has("--json") or options.has("--quiet"):
        return False
    words = [word for operand in options.operands for word in operand.split()]
    return "git" in words and ("merge" in words or "pull" in words)


def _asker(sock: socket, options: Options) -> Asker | None:
    if not options.has("--ask"):
        return None
    from sandboxd_client.cli.terminal_approver import Asker

    return Asker(sock.getpeername())


def new_id() -> str:
    return f"ctl-{os.getpid()}-{os.urandom(6).hex()}"


def tell_surprises(options: Options, params: dict[str, Any]) -> None:
    if not any(map(options.has, _SURPRISING)):
        return
    from sandboxd_client.cli.start_notices import say_start_notices

    say_start_notices(options, params, terminal=os.isatty(2))


def _names_session(options: Options) -> bool:
    if options.has("--session") or options.has("--mode") or options.has("--plan"):
        return True
    return bool(os.environ.get("SANDBOXD_SESSION"))


def _refuse_half_work(options: Options) -> None:
    if "git" not in options.operands[0] and "git" not in options.operands[-1]:
        return
    from sandboxd_client.cli.hints.advice import refuse_half_work

    refuse_half_work(options)


def is_advised(options: Options) -> bool:
    words = options.operands
    if not words:
        return False
    is_known = words[0].rpartition("/")[2] in _ADVISED
    return is_known or "install" in words or "http.server" in words


def _note_missing(options: Options) -> None:
    if not is_advised(options):
        return
    from sandboxd_client.cli.hints.advice import note_missing

    note_missing(options)
