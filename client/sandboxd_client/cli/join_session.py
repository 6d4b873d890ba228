"""Which session the command of `run` belongs to: the one of the environment, a named one, or one
of its own with another mode."""

from __future__ import annotations

from sandboxd_client import handshake, session_variable
from sandboxd_client.cli.approval import ONE_COMMAND
from sandboxd_client.cli.parse import Options

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket


def join_session(sock: socket, options: Options, workspace: str | None) -> None:
    flag = options.one("--session")
    named = (
        session_variable.parse(flag, "--session") if flag else session_variable.from_environment()
    )
    if named is not None:
        session, token = named
        handshake.ask(sock, "session/attach", {"session": session, "token": token})
    mode, plan = options.one("--mode"), options.has("--plan")
    if mode is None and not plan:
        return
    params: dict[str, object] = {"linger_secs": 0, "title": ONE_COMMAND}
    if mode is not None:
        params["mode"] = mode
    if plan:
        params["plan"] = True
    if workspace is not None:
        params["workspace"] = workspace
    handshake.ask(sock, "session/open", params)
