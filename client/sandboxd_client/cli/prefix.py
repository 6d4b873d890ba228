"""Names and IDs as people type them: a name whole, of a generated ID a beginning that only one has.
Imports nothing heavy: `run` uses it."""

from __future__ import annotations

from sandboxd_client.cli.parse import UsageError
from sandboxd_client.cli.plain_text import quote

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket
    from typing import Any

_LEAST = 4  # digits; fewer may be a name
_NUMBER = 14  # digits that an ID has at least: ex-…, sb-…, ctl-PID-…
_FULL_ID = len("sb-") + 32


def unique(typed: str, known: list[str]) -> str:
    """`typed` itself where nothing is like it: the daemon knows ended ones, too."""
    if typed in known:
        return typed
    found = [one for one in known if _is_beginning(typed, one)]
    if len(found) > 1:
        raise UsageError(f"{typed!r} is the beginning of {len(found)} IDs", f"{', '.join(found)}")
    if not found:
        _refuse_near(typed, known)
    return found[0] if found else typed


def _is_beginning(typed: str, one: str) -> bool:
    """People also leave out the kind: `3f2a` for `ex-3f2a…`."""
    kind, _, number = one.partition("-")
    is_generated = len(number) >= _NUMBER and not number.strip("0123456789abcdef-")
    start = typed.removeprefix(f"{kind}-")
    return is_generated and len(start) >= _LEAST and number.startswith(start)


def _refuse_near(typed: str, known: list[str]) -> None:
    from difflib import get_close_matches

    near = [one for one in known if one.startswith(typed)] or get_close_matches(typed, known, n=1)
    if near:
        from sandboxd_proto.errors import NotFound

        raise NotFound(
            f"nothing is called {typed!r}",
            remedy=f"did you mean {' or '.join(map(quote, near[:3]))}? A name is typed whole, of "
            f"a generated ID its first {_LEAST} digits or more",
        )


def find_sandbox(sock: socket, params: dict[str, Any]) -> None:
    """The beginning of an ID becomes the ID; the daemon knows IDs and names."""
    typed = params.get("sandbox")
    if typed is None or (typed.startswith("sb-") and len(typed) == _FULL_ID):
        return
    from sandboxd_client.handshake import ask

    listed = ask(sock, "sandbox/list")["sandboxes"]
    known = [one.get(key) for one in listed for key in ("name", "sandbox")]
    params["sandbox"] = unique(typed, list(filter(None, known)))
