"""A hint for a command that left processes running, which ended with its sandbox."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_SIGNALLED = 128


def left_processes(result: dict[str, Any]) -> str | None:
    """By the daemon's report. git leaves its clean-up, which its next command does as well."""
    left = result.get("left_processes")
    if not left or result.get("outcome") != "exited" or _are_of_git(left.get("names", [])):
        return None
    if (result.get("exit_code") or 0) > _SIGNALLED:  # a shell that was interrupted
        return None
    from sandboxd_client.cli.plain_text import one_line

    names = one_line(", ".join(left.get("names", [])))
    which = f" ({names})" if names else ""
    what = "a process" if left["count"] == 1 else f"{left['count']} processes"
    were = "was" if left["count"] == 1 else "were"
    return (
        f"hint: {what} that the command left running{which} {were} ended with it. To keep a server "
        "that others reach: sandboxctl sandbox create --name web; sandboxctl sandbox run --detach "
        "web -- COMMAND; for one command alone: sandboxctl run --detach -- COMMAND"
    )


def _are_of_git(names: list[str]) -> bool:
    return bool(names) and all(name == "git" or name.startswith("git-") for name in names)
