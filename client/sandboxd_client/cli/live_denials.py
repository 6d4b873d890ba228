"""Denials while a shell or a long run goes on."""

from __future__ import annotations

import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from sandboxd_client.cli.parse import Options

_MOST = 20


class LiveDenials:
    """`told`: lines that were printed, with what each is about: the end has no second line about
    that. What is known before `after_s` (of time.monotonic) is told then. `claims`: also what only
    the command says."""

    def __init__(self, options: Options, after_s: float = 0.0, *, claims: bool = False) -> None:
        self.told: dict[str, dict[str, Any]] = {}
        self._early: list[dict[str, Any]] = []
        self._options = options
        self._after_s = after_s
        self._claims = claims

    def hear(self, denial: dict[str, Any], put: Callable[[str], None]) -> None:
        """`put`: takes the line, after the output that came before it."""
        is_ended = denial.get("kind") == "sandbox_error"  # the end says why
        if is_ended or (denial.get("claimed") and not self._claims):
            return
        if time.monotonic() < self._after_s:
            self._early.append(denial)
        else:
            self._tell(denial, put)

    @property
    def left_s(self) -> float | None:
        """Until something is to be told."""
        return max(0.0, self._after_s - time.monotonic()) if self._early else None

    def tell_due(self, put: Callable[[str], None]) -> None:
        if self.left_s == 0:
            early, self._early = self._early, []
            for denial in early:
                self._tell(denial, put)

    def _tell(self, denial: dict[str, Any], put: Callable[[str], None]) -> None:
        from sandboxd_client.cli.denial_lines import format_denials, in_running_shell
        from sandboxd_client.cli.plain_text import quote
        from sandboxd_client.cli.screen import denial_line

        if len(self.told) >= _MOST:
            return
        given = {f"--net {quote(host)}" for host in self._options.hosts}
        (line,) = format_denials([denial], given, self._options.typed_in_sandbox)
        if line not in self.told:
            self.told[line] = denial
            put(denial_line(in_running_shell(line) if self._claims else line))
