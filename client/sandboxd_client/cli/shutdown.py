"""`sandboxctl shutdown`: end every command, then the daemon; returns when it is gone."""

from __future__ import annotations

import os
from typing import Any

from sandboxd_client import handshake, start_daemon, transport
from sandboxd_client.autostart import nobody_there
from sandboxd_client.cli.approver_connection import ApproverConnection
from sandboxd_client.cli.connect import print_json, socket_path
from sandboxd_client.cli.parse import Options
from sandboxd_client.cli.screen import REFUSED, say
from sandboxd_client.cli.status import counted
from sandboxd_client.errors import DaemonNotRunning
from sandboxd_proto.errors import Busy, SandboxdError


def main(options: Options) -> int:
    path = socket_path(options)
    try:
        sock = transport.connect(path)
    except DaemonNotRunning as error:
        if not nobody_there(error):
            raise
        say(f"no daemon listens on {path}")
    else:
        try:
            running = in_the_way(handshake.ask(sock, "status"), path)
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
    """A command ends by itself; a sandbox that was made ends when it is destroyed, or was idle."""
    ways = ["wait for commands, or end them (sandboxctl ps, kill)"] if "command" in running else []
    if "sandbox" in running:
        ways.append("end sandboxes (sandboxctl sandbox list, sandbox destroy)")
    if "session" in running:
        ways.append("leave sessions (sandboxctl sessions)")
    return Busy(
        f"{running} would end with the daemon", remedy=f"{', '.join(ways)}; or give --force"
    )


def in_the_way(status: dict[str, Any], path: str) -> str:
    """What would end with the daemon; empty if nothing."""
    running = status.get("executions") or 0
    sandboxes = status.get("sandboxes")
    kept = sandboxes.get("persistent", 0) if isinstance(sandboxes, dict) else 0
    sessions = _sessions_in_use(path)
    found = [
        counted(number, what)
        for number, what in ((running, "command"), (kept, "sandbox"), (sessions, "session"))
        if number
    ]
    return " and ".join(found)


def _sessions_in_use(path: str) -> int:
    """Whose agents are there. None are known to another user than the daemon's own."""
    try:
        with ApproverConnection(path, types=["-"]) as link:
            return sum(one["connections"] > 0 for one in link.call("session/list")["sessions"])
    except SandboxdError:
        return 0


def _confirmed(running: str) -> bool:
    if not (os.isatty(0) and os.isatty(2)):
        raise in_use_error(running)
    try:
        answer = input(f"{running} would end with the daemon (sandboxctl ps). End it? [y/N] ")
    except EOFError:
        return False
    return answer.strip().lower() in ("y", "yes")
