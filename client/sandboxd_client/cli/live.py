"""Denials while the command still runs: at once in a shell, after a moment in a run."""

from __future__ import annotations

import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from typing import Any

# What ends sooner is told once, at its end.
RUN_S = 2.0
_MOST = 20


class LiveDenials:
    """`after_s`: how long the command must have run. `claims`: also what only its words show.
    `raw`: the terminal is in raw mode, where a line needs a carriage return. `given`: hosts that
    are allowed already, which a remedy repeats. `typed`: the flags of a command in a sandbox that
    exists."""

    def __init__(
        self, *, after_s: float, claims: bool, raw: bool, given: Collection[str] = (),
        typed: Collection[str] | None = None,
    ) -> None:  # fmt: skip
        self._from = time.monotonic() + after_s
        self._claims = claims
        self._hosts = given
        self._typed = typed
        self._end = "\r\n" if raw else "\n"
        self.told: set[str] = set()

    def tell(self, denial: dict[str, Any], put: Callable[[bytes], None]) -> None:
        """`put`: takes the line, after the output that came before it."""
        if time.monotonic() < self._from or len(self.told) >= _MOST:
            return
        if denial.get("claimed") and not self._claims:
            return
        from sandboxd_client.cli.denial_lines import denied
        from sandboxd_client.cli.plain_text import quoted
        from sandboxd_client.cli.screen import denial_line

        # The same line as at the end, where it is then left out.
        (line,) = denied([denial], {f"--net {quoted(host)}" for host in self._hosts}, self._typed)
        if line not in self.told:
            # The end may list its flags together with those of others.
            self.told |= {line, line.partition("; to allow it ")[0]}
            put(denial_line(line, self._end).encode(errors="backslashreplace"))
