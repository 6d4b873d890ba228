"""Which execution or sandbox is meant by what people type."""

from __future__ import annotations

import os

from sandboxd_client.autostart import nobody_there
from sandboxd_client.calls import MethodCall
from sandboxd_client.cli import connect as connection
from sandboxd_client.cli.parse import Options
from sandboxd_client.cli.plain_text import quote
from sandboxd_client.cli.prefix import unique
from sandboxd_client.client import Client
from sandboxd_client.errors import DaemonNotRunning
from sandboxd_proto.errors import NotFound, SandboxdError
from sandboxd_proto.locations import approver_file, default_socket
from sandboxd_proto.messages.execution import ExecutionInfo

_TOKEN_BYTES = 4096


def connect(options: Options) -> Client:
    """For a command that is named: without a daemon there is none."""
    try:
        return connection.connect(options)
    except DaemonNotRunning as error:
        if not nobody_there(error):
            raise
        raise NotFound(
            f"there is no execution {options.operands[0]!r}: {connection.nobody_listens(options)}",
            remedy="a daemon's end ends what it runs; how a command ended is in sandboxctl audit",
        ) from None


def executions(client: Client, *, ended: bool = False) -> list[ExecutionInfo]:
    """Of every client of this user, where the approver's token can be read; else the detached.
    `ended`: also detached ones that have ended."""
    become_owner(client)
    return client.execution_list(ended=ended).executions


def become_owner(client: Client) -> None:
    """The connection may then see and end what other connections of this user run."""
    try:
        with open(approver_file(client.socket_path), encoding="ascii") as file:
            token = file.read(_TOKEN_BYTES).strip()
    except (OSError, ValueError):
        return
    try:
        params = {"role": "approver", "token": token}
        client._ask(MethodCall("events/subscribe", params, dict))
    except SandboxdError:
        return


def known(kind: str) -> dict[str, str]:
    """ID to a description, for completion."""
    with Client(default_socket(os.environ), autostart=False) as client:
        if kind == "sandbox":
            listed = client.sandbox_list().sandboxes
            return {item.name or item.sandbox: item.workspace or item.backend for item in listed}
        return {
            item.execution_id: " ".join(item.argv)[:40]
            for item in executions(client, ended=kind == "detached")
            if item.detached or kind != "detached"
        }


def execution_id(client: Client, typed: str) -> str:
    known = [item.execution_id for item in executions(client, ended=True)]
    if typed in known or has_ended(client, typed):
        return typed
    if typed in _sandboxes(client):
        raise NotFound(
            f"{typed!r} is a sandbox, and no command",
            remedy="sandboxctl ps --all lists commands; to end the sandbox with all that runs in "
            f"it: sandboxctl sandbox destroy {quote(typed)}",
        )
    return unique(typed, known)


def _sandboxes(client: Client) -> list[str]:
    """Their names and IDs."""
    listed = client.sandbox_list().sandboxes
    return [name for one in listed for name in (one.name, one.sandbox) if name]


def has_ended(client: Client, typed: str) -> bool:
    try:
        client.execution_status(typed)
    except NotFound:
        return False
    except SandboxdError:
        return True  # it could not be started
    return True


def refuse_command(client: Client, typed: str) -> None:
    """NotFound that says so if it is a command's ID where a sandbox's was to be typed."""
    state = {one.execution_id: one.state for one in executions(client, ended=True)}.get(typed)
    if state == "ended":
        raise NotFound(
            f"there is no sandbox {typed!r}; the command of that name has ended",
            remedy="sandboxctl sandbox list shows those that exist",
        ) from None
    if state is not None:
        raise NotFound(
            f"{typed!r} is a command, and no sandbox",
            remedy=f"sandboxctl kill {quote(typed)} ends it",
        ) from None


def sandbox_id(client: Client, typed: str) -> str:
    return unique(typed, _sandboxes(client))
