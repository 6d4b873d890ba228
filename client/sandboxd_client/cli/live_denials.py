"""Denials while a shell still runs. `run` tells them at its end: its lines come last."""

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
_ADVICE = ("; to allow it ", "; give it ", "; make a sandbox ")


def tell(
    denial: dict[str, Any],
    put: Callable[[str], None],
    told: set[str],
    *,
    options: Options,
) -> None:
    """`put`: takes the line, after the output that came before it. `told`: the lines that were
    printed."""
    if len(told) >= _MOST:
        return
    # The same line as at the end, where it is then left out.
    given = {f"--net {quote(host)}" for host in options.hosts}
    (line,) = format_denials([denial], given, options.typed_in_sandbox)
    if line not in told:
        # The end may list its flags together with those of others.
        told |= {line, *(line.partition(words)[0] for words in _ADVICE)}
        put(denial_line(line))
