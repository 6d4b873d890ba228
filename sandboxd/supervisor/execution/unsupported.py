"""Refuse what a request asks for and its backend cannot do."""

from __future__ import annotations

from shlex import quote

from sandboxd.backends.interface import Capabilities
from sandboxd.policy.display_names import named
from sandboxd.supervisor.request import ExecuteRequest
from sandboxd_proto.errors import PolicyNotSupported


def refuse_unsupported(request: ExecuteRequest, able: Capabilities, backend: str) -> None:
    closed = request.plan.nested.closed
    if closed and able.isolates and not able.mounts:
        raise PolicyNotSupported(
            f"{named(closed[0])} cannot be looked into, and the backend {backend} could not keep a "
            "command from opening it and changing what runs code outside the sandbox later",
            field="workspace",
            remedy=f"open it again: chmod u+rwx {quote(closed[0])}; or use the backend bubblewrap",
        )
    if request.explain is not None and not able.explains:
        raise PolicyNotSupported(
            f"the backend {backend} cannot explain", field="explain",
            remedy="leave out explain, or use the backend bubblewrap",
        )  # fmt: skip
    if request.pty is not None and not able.terminals:
        raise PolicyNotSupported(
            able.terminal_refusal or f"commands of the backend {backend} have no terminal",
            field="pty",
            remedy="run it without a terminal (sandboxctl run … </dev/null | cat)",
        )  # fmt: skip
    if request.pty is not None and request.pty.stderr_apart and not able.stderr_apart:
        raise PolicyNotSupported(
            f"a terminal of the backend {backend} is the command's stderr, too", field="pty.stderr",
            remedy="leave pty.stderr out, or run it without a terminal (sandboxctl run --no-pty)",
        )  # fmt: skip
    has_input = request.stdin or request.stdin_open or request.passed.stdin is not None
    if has_input and not able.stdin:
        raise PolicyNotSupported(
            f"commands of the backend {backend} have no stdin", field="stdin",
            remedy="give no input (</dev/null), or put it into a file",
        )  # fmt: skip
