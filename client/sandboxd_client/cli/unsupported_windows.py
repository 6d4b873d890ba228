"""Subcommands that Windows has no means for yet: each is refused by its name, with the reason."""

from __future__ import annotations

from sandboxd_client.cli.parse import UsageError

_TERMINAL = "it needs a terminal for the command, which is not verified on a real Windows yet"
_REASONS = {
    "shell": (_TERMINAL, "write sandboxctl run -- cmd /d /c COMMAND"),
    "explain": (
        "the backend appcontainer does not record refused accesses",
        "read the denials of sandboxctl run --json",
    ),
    "sandbox forward": (
        "Windows lets no process of the host connect into an AppContainer",
        "let the command write to a file of the workspace",
    ),
    "image": ("it builds an image for the docker backend of Linux", "build it on Linux"),
}


def refuse(name: str) -> None:
    """UsageError for a subcommand that does not work on Windows."""
    if name in _REASONS:
        why, hint = _REASONS[name]
        raise UsageError(f"{name} does not work on Windows: {why}", hint)
