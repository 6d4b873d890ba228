"""`sandboxctl session open|close`: run an agent whose commands belong to one session."""

from __future__ import annotations

import os
import subprocess
from typing import Any

from sandboxd_client.cli.amounts import seconds
from sandboxd_client.cli.approver_connection import approver
from sandboxd_client.cli.connect import connect, print_json
from sandboxd_client.cli.parse import Options, UsageError
from sandboxd_client.cli.place import workspace
from sandboxd_client.cli.screen import NOT_EXECUTABLE, NOT_FOUND, say
from sandboxd_client.session_variable import VARIABLE as SESSION_VARIABLE
from sandboxd_proto.messages.session import Budget

_LIMITS = {
    "usd": "max_cost_usd", "runtime": "max_tool_runtime_secs", "wall": "max_wall_time_secs",
    "processes": "max_processes", "depth": "max_agent_depth", "tokens_in": "max_tokens_in",
    "tokens_out": "max_tokens_out",
}  # fmt: skip
_TIMES = ("runtime", "wall")


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
            return _exit_code(subprocess.call(options.operands, env=env))
        except FileNotFoundError:
            say(f"error: {options.operands[0]} was not found")
            return NOT_FOUND
        except PermissionError:
            say(f"error: {options.operands[0]} cannot be executed")
            return NOT_EXECUTABLE
        finally:
            client.session_close()


def _exit_code(code: int) -> int:
    return 128 - code if code < 0 else code


def close(options: Options) -> int:
    with approver(options) as link:
        for session in options.operands:
            closed = link.call("session/close", {"session": session})
            if options.has("--json"):
                print_json(closed)
            else:
                print(f"{session}: {closed['executions']} commands were ended")
    return 0


def budget(text: str | None) -> Budget | None:
    """`usd=2,runtime=10m` and the like."""
    if text is None:
        return None
    limits: dict[str, float] = {}
    for part in text.split(","):
        name, equals, value = part.strip().partition("=")
        if not equals or name not in _LIMITS:
            raise UsageError(
                f"--budget cannot be {part!r}", f"write NAME=VALUE; names: {', '.join(_LIMITS)}"
            )
        limits[_LIMITS[name]] = _amount(name, value)
    return Budget(**limits)  # type: ignore[arg-type]


def _amount(name: str, value: str) -> float:
    if name in _TIMES:
        return seconds(value, "--budget")
    try:
        return float(value) if name == "usd" else int(value)
    except ValueError:
        raise UsageError(f"--budget {name} cannot be {value!r}", "write a number") from None
