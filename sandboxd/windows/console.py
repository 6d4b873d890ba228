"""Pseudo consoles, prepared: whether they work inside an AppContainer was never seen.

Until a real Windows has shown it, a request for a terminal is refused. What is known: the list of
attributes has PSEUDOCONSOLE and JOB_LIST, the standard handles are INVALID_HANDLE_VALUE, nothing is
inherited, and the console is closed in a thread while its output is still read.
"""

from __future__ import annotations

from sandboxd_proto.errors import PolicyNotSupported


def refuse_terminal() -> PolicyNotSupported:
    return PolicyNotSupported(
        "terminals are not supported on Windows yet: they were not verified on a real machine",
        field="pty", remedy="run the command without a pty",
    )  # fmt: skip
