"""What runs in a folder: what appears there meanwhile is moved aside, and a file that is replaced
below a mount ends it."""

from __future__ import annotations

from collections.abc import Sequence

from sandboxd_client.cli.connect import connect
from sandboxd_client.cli.ids import executions
from sandboxd_client.cli.parse import Options
from sandboxd_client.cli.plain_text import quote
from sandboxd_client.cli.workspace import here, inside, workspace
from sandboxd_client.errors import DaemonNotRunning
from sandboxd_proto.messages.execution import ExecutionInfo
from sandboxd_proto.messages.sandbox import SandboxInfo


def end_commands(options: Options, folder: str) -> list[str]:
    """The command lines that end it, of what this user's daemon runs."""
    try:
        with connect(options) as client:
            commands = [one for one in executions(client) if not one.sandbox]
            sandboxes = client.sandbox_list().sandboxes
    except DaemonNotRunning:
        return []  # or this is inside a sandbox
    kill = [one.execution_id for one in commands if _watches(one, folder)]
    destroy = [one.name or one.sandbox for one in sandboxes if _watches(one, folder)]
    return _line("kill", kill) + _line("sandbox destroy", destroy)


def before_changes(options: Options) -> list[str]:
    """The line for who is told to change protected files outside."""
    folder = workspace(options.one("--workspace")) or here()
    if not (running := end_commands(options, folder)):
        return []
    return [
        "hint: before you change protected files outside, end what runs in this workspace: "
        f"{'; '.join(running)}. It is ended when one is replaced (git config replaces "
        ".git/config), and one that appears is moved aside"
    ]


def _watches(one: ExecutionInfo | SandboxInfo, folder: str) -> bool:
    return any(inside(folder, root) or inside(root, folder) for root in one.watched)


def _line(command: str, names: Sequence[str]) -> list[str]:
    return [f"sandboxctl {command} {' '.join(map(quote, names))}"] if names else []
