"""Names of system calls by number, and which of them `strict` kills for."""

from __future__ import annotations

from functools import cache

from sandboxd.linux.seccomp import library, strict
from sandboxd.linux.seccomp.numbers import NEW_CALLS


@cache
def call_name(number: int) -> str:
    """The name on this machine's architecture; the number in words for one without a name."""
    pyseccomp = library.pyseccomp()
    try:
        name = pyseccomp.resolve_syscall(pyseccomp.Arch.NATIVE, number)
    except (ValueError, OSError):
        name = None
    if isinstance(name, bytes):
        name = name.decode()
    if not name:
        name = next((new for new, value in NEW_CALLS.items() if value == number), None)
    return name or f"number {number}"


@cache
def _spared() -> frozenset[str]:
    groups = (*strict.ALLOWED, *strict.REFUSED)
    return frozenset(str(call) for group in groups for call in group.calls)


def kills(name: str) -> bool:
    """Whether `strict` ends a process for it. Gated calls answer an error."""
    return name not in _spared()
