"""The vocabulary of a filter: which answer a system call gets, on which arguments.

Arguments are compared only as masked equality. The kernel takes an `int` argument from the low 32
bits of a register and ignores the rest, so a plain 64-bit comparison could be bypassed by setting
an upper bit, and garbage there would refuse a valid call. Other conditions ("any family but these")
are written as disjoint blocks of values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import msgspec

INT_MASK = 0xFFFF_FFFF

# Answers: an errno (positive), or one of these two.
ALLOW = 0
KILL = -1


class ArgumentMatch(msgspec.Struct, frozen=True):
    """True for a call whose argument number `arg`, under `mask`, is `value`."""

    arg: int
    mask: int
    value: int


class SyscallRule(msgspec.Struct, frozen=True):
    """`call` gets `answer` when every one of `matches` holds; without matches, always."""

    call: str | int
    answer: int
    matches: tuple[ArgumentMatch, ...] = ()


class RuleGroup(msgspec.Struct, frozen=True):
    """Calls that share one answer, and the reason for it."""

    name: str
    reason: str
    calls: tuple[str, ...]
    answer: int


@dataclass(frozen=True, slots=True)
class ArgumentRule:
    """A call whose answer depends on its arguments.

    `refuse` and `allow` are disjoint and together cover every argument, so that the same gate
    serves a deny list (which loads `refuse` only) and an allowlist (which loads both).
    """

    call: str
    reason: str
    refuse: tuple[tuple[int, tuple[ArgumentMatch, ...]], ...]
    allow: tuple[tuple[ArgumentMatch, ...], ...] = field(default=())

    def rules(self, *, default: int) -> Iterator[SyscallRule]:
        for answer, matches in self.refuse:
            yield SyscallRule(self.call, answer, matches)
        if default != ALLOW:
            for matches in self.allow:
                yield SyscallRule(self.call, ALLOW, matches)


def int_is(arg: int, value: int) -> ArgumentMatch:
    """An `int` argument equals `value`."""
    return ArgumentMatch(arg, INT_MASK, value)


def int_outside(arg: int, values: Iterable[int], *, bits: int = 32) -> tuple[ArgumentMatch, ...]:
    """Disjoint matches that together hold for every `bits` wide value not in `values`."""
    kept = frozenset(values)
    full = (1 << bits) - 1

    def walk(prefix: int, depth: int) -> Iterator[ArgumentMatch]:
        rest = bits - depth
        if not any(value >> rest == prefix for value in kept):
            yield ArgumentMatch(arg, full >> rest << rest, prefix << rest)
        elif rest:
            yield from walk(prefix << 1, depth + 1)
            yield from walk(prefix << 1 | 1, depth + 1)

    return tuple(walk(0, 0))
