"""Denials while a shell or a long run goes on."""

from __future__ import annotations

from sandboxd_client.cli.denial_lines import format_denials
from sandboxd_client.cli.plain_text import quote
from sandboxd_client.cli.screen import denial_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from sandboxd_client.cli.parse import Options

_MOST = 20


def tell(
    denial: dict[str, Any],
    put: Callable[[str], None],
    told: dict[str, dict[str, Any]],
    *,
    options: Options,
) -> None:
    """`put`: takes the line, after the output that came before it. `told`: the lines that were
    printed, with what each is about: the end has no second line about that."""
    if len(told) >= _MOST:
        return
    given = {f"--net {quote(host)}" for host in options.hosts}
    (line,) = format_denials([denial], given, options.typed_in_sandbox)
    if line not in told:
        told[line] = denial
        put(denial_line(line))
