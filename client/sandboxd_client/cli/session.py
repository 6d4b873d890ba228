"""`sandboxctl session open|close`: run an agent whose commands belong to one session."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import Any

from sandboxd_client.cli.amounts import seconds
from sandboxd_client.cli.approver_connection import approver
from sandboxd_client.cli.budget_words import LIMITS, TIMES
from sandboxd_client.cli.connect import connect, print_json
from sandboxd_client.cli.parse import Options, UsageError
from sandboxd_client.cli.screen import NOT_EXECUTABLE, NOT_FOUND, say
from sandboxd_client.cli.status import counted
from sandboxd_client.cli.workspace import workspace
from sandboxd_client.client import Client
from sandboxd_client.errors import ConnectionLost
from sandboxd_client.session_variable import VARIABLE as SESSION_VARIABLE
from sandboxd_proto.errors import NotFound
from sandboxd_proto.messages.session import Budget


def open(options: Options) -> int:
    """The agent's own commands belong to the session, which ends with the agent."""
    params: dict[str, Any] = {
        "mode": options.one("--mode"), "plan": True if options.has("--plan") else None,
        "name": options.one("--name"), "title": options.one("--title"),
        "workspace": workspace(options.one("--workspace")),
        "budget": budget(options.one("--budget")),
    }  # fmt: skip
    with connect(options, may_start=True) as client:
        opened = client.session_open(**params)
        if opened.resumed:
            say(f"the session {opened.name} goes on: mode {opened.mode}, plan {opened.plan}")
        token = f"{opened.session}:{opened.token.reveal()}"
        env = {
            **os.environ,
            SESSION_VARIABLE: token,
            "SANDBOXD_SOCKET": client.socket_path,
        }
        try:
            code = _run(options.operands, env)
        except FileNotFoundError:
            say(f"error: {options.operands[0]} was not found")
            return NOT_FOUND
        except PermissionError:
            say(f"error: {options.operands[0]} cannot be executed")
            return NOT_EXECUTABLE
        finally:
            _end(client)
    return _exit_code(code)


def _end(client: Client) -> None:
    try:
        client.session_close()
    except (ConnectionLost, NotFound):
        say("the session had ended before: the daemon was restarted, or the session was closed")


def _run(argv: list[str], env: dict[str, str]) -> int:
    """Ctrl-C is the agent's, which may use it as a key; subprocess.call would kill it. A handler,
    because the agent would inherit that a signal is ignored."""
    before = signal.getsignal(signal.SIGINT)
    if before != signal.SIG_IGN:
        signal.signal(signal.SIGINT, lambda number, frame: None)
    try:
        return subprocess.Popen(argv, env=env).wait()
    finally:
        signal.signal(signal.SIGINT, before)


if sys.platform == "win32":

    def _exit_code(code: int) -> int:
        return code

else:

    def _exit_code(code: int) -> int:
        """Dies of Ctrl-C where the agent did, so that a loop around it ends."""
        from sandboxd_client.cli import signals

        if code == -signals.INT:
            raise signals.Interrupted(signals.INT)
        return 128 - code if code < 0 else code


def close(options: Options) -> int:
    with approver(options) as link:
        for session in options.operands:
            closed = link.call("session/close", {"session": session})
            if options.has("--json"):
                print_json(closed)
            else:
                ended = closed["executions"]
                were = "was" if ended == 1 else "were"
                print(f"{session}: {counted(ended, 'command')} {were} ended")
    return 0


def budget(text: str | None) -> Budget | None:
    """`usd=2,runtime=10m` and the like."""
    return None if text is None else Budget(**limits_of(text, "--budget"))  # type: ignore[arg-type]


def limits_of(text: str, flag: str) -> dict[str, float]:
    """By their fields."""
    limits: dict[str, float] = {}
    for part in text.split(","):
        name, equals, value = part.strip().partition("=")
        if not equals or name not in LIMITS:
            raise UsageError(
                f"{flag} cannot be {part!r}", f"write NAME=VALUE; names: {', '.join(LIMITS)}"
            )
        limits[LIMITS[name]] = _amount(name, value, flag)
    return limits


def _amount(name: str, value: str, flag: str) -> float:
    if name in TIMES:
        return seconds(value, flag)
    try:
        return float(value) if name == "usd" else int(value)
    except ValueError:
        raise UsageError(f"{flag} {name} cannot be {value!r}", "write a number") from None
