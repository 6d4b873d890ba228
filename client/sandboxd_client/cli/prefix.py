"""The beginning of an ID, or its name, as people type it. Imports nothing heavy: `run` uses it."""

from __future__ import annotations

from sandboxd_client.cli.parse import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket
    from typing import Any

_LEAST = 4
_FULL_ID = len("sb-") + 32


def unique(typed: str, ids: list[str]) -> str:
    """The ID itself where nothing begins so: the daemon knows ended ones, too."""
    if typed in ids:
        return typed
    found = [one for one in ids if one.startswith(typed) or _is_number(typed, one)]
    if len(found) > 1:
        raise UsageError(f"{typed!r} is the beginning of {len(found)} IDs", f"{', '.join(found)}")
    return found[0] if found else typed


def _is_number(typed: str, one: str) -> bool:
    """People also leave out the kind: `3f2a` for `ex-3f2a…`. Fewer letters may be a name."""
    return len(typed) >= _LEAST and one.partition("-")[2].startswith(typed)


def find_sandbox(sock: socket, params: dict[str, Any]) -> None:
    """The beginning of an ID becomes the ID; the daemon knows IDs and names."""
    typed = params.get("sandbox")
    if typed is None or (typed.startswith("sb-") and len(typed) == _FULL_ID):
        return
    from sandboxd_client.handshake import ask

    listed = ask(sock, "sandbox/list")["sandboxes"]
    if typed not in [one.get("name") for one in listed]:
        params["sandbox"] = unique(typed, [one["sandbox"] for one in listed])
