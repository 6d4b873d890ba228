"""Refuse what a request asks for and its backend cannot do."""

from __future__ import annotations

from sandboxd.backends.interface import Capabilities
from sandboxd.supervisor.request import ExecuteRequest
from sandboxd_proto.errors import PolicyNotSupported


def refuse_unsupported(request: ExecuteRequest, able: Capabilities, backend: str) -> None:
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
    has_input = request.stdin or request.stdin_open or request.passed.stdin is not None
    if has_input and not able.stdin:
        raise PolicyNotSupported(
            f"commands of the backend {backend} have no stdin", field="stdin",
            remedy="give no input (</dev/null), or put it into a file",
        )  # fmt: skip
