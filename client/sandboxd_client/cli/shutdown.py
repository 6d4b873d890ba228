"""`sandboxctl shutdown`: end every command, then the daemon; returns when it is gone."""

from __future__ import annotations

from typing import Any

from sandboxd_client import handshake, start_daemon, transport
from sandboxd_client.cli.connect import print_json, socket_path
from sandboxd_client.cli.parse import Options
from sandboxd_client.cli.screen import REFUSED, say
from sandboxd_client.cli.status import counted
from sandboxd_client.cli.terminal import is_terminal
from sandboxd_client.errors import DaemonNotRunning
from sandboxd_proto.errors import Busy


def main(options: Options) -> int:
    path = socket_path(options)
    try:
        sock = transport.connect(path)
    except DaemonNotRunning:
        say(f"no daemon listens on {path}")
    else:
        try:
            running = in_the_way(handshake.ask(sock, "status"))
            if running and not (options.has("--force") or _confirmed(running)):
                say("it goes on")
                return REFUSED
            start_daemon.stop(sock, path)
        finally:
            sock.close()
        if running:
            say(f"{running} ended with the daemon")
    if options.has("--json"):
        print_json({})
    return 0


def in_use_error(running: str) -> Busy:
    return Busy(
        f"{running} would end with the daemon",
        remedy="wait for them (sandboxctl ps, sandboxctl sandbox list), or give --force",
    )


def in_the_way(status: dict[str, Any]) -> str:
    """What would end with the daemon; empty if nothing."""
    running = status.get("executions") or 0
    sandboxes = status.get("sandboxes")
    kept = sandboxes.get("persistent", 0) if isinstance(sandboxes, dict) else 0
    found = [
        counted(number, what)
        for number, what in ((running, "command"), (kept, "sandbox"))
        if number
    ]
    return " and ".join(found)


def _confirmed(running: str) -> bool:
    if not (is_terminal(0) and is_terminal(2)):
        raise in_use_error(running)
    try:
        answer = input(f"{running} would end with the daemon (sandboxctl ps). End it? [y/N] ")
    except EOFError:
        return False
    return answer.strip().lower() in ("y", "yes")
