"""A command without --timeout where the daemon's config has a longest one: that one is asked for.

Without a flag sandboxctl asks for no timeout, which such a daemon refuses before anything runs.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from sandboxd_client.cli.parse import Options


def with_permitted_timeout(perform: Callable[[Options], int], options: Options) -> int:
    try:
        return perform(options)
    except Exception as error:
        take_permitted_timeout(options, error)
    return perform(options)


def take_permitted_timeout(options: Options, error: Exception) -> None:
    """Add the longest timeout, if the lack of one was refused; raises any other error again."""
    longest = _longest(error)
    if longest is None or options.has("--timeout") or options.has("--manifest"):
        raise error
    options.add("--timeout", f"{longest}s")


def _longest(error: Exception) -> str | None:
    """From the config's own line, `[ceiling] max_timeout_secs = 3600.0`."""
    if getattr(error, "kind", None) != "CeilingExceeded":
        return None
    line = str(getattr(error, "facts", {}).get("config_line"))
    key, _, value = line.partition(" = ")
    return value if key == "[ceiling] max_timeout_secs" else None
