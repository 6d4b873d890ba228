"""The caller's variables that a command gets when neither a manifest nor a flag names its own."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

USUAL = (
    "PATH", "HOME", "USER", "SHELL", "LANG", "TZ", "TERM", "COLORTERM",
    "GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL",
    "EDITOR", "VISUAL", "GIT_EDITOR", "GIT_SEQUENCE_EDITOR",
)  # fmt: skip


def usual(caller: Mapping[str, str]) -> dict[str, str]:
    """Where programs are, who the user is, language, terminal, editor. Nothing that is secret."""
    return {
        name: value for name, value in caller.items() if name in USUAL or name.startswith("LC_")
    }
