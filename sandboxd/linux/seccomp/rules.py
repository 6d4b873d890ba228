"""The vocabulary of a filter: which answer a system call gets, on which arguments.

The kernel takes an `int` argument from the low 32 bits of a register and ignores the rest, so only
those are compared: a 64-bit comparison could be bypassed by setting an upper bit, and garbage
there would refuse a valid call.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import msgspec

INT_MASK = 0xFFFF_FFFF

# Answers: an errno (positive), or one of these two.
ALLOW = 0
KILL = -1


class ArgumentMatch(msgspec.Struct, frozen=True):
    """True for a call whose argument number `arg`, under `mask`, is one of `values`.

    With `inside` false: none of them.
    """

    arg: int
    mask: int
    values: tuple[int, ...]
    inside: bool = True

    def __post_init__(self) -> None:
        if self.arg not in range(6) or not 0 < self.mask <= INT_MASK or not self.values:
            raise ValueError(f"{self} compares nothing that an int argument has")
        if any(value & ~self.mask for value in self.values):
            raise ValueError(f"{self} has a value with bits outside the mask")


class SyscallRule(msgspec.Struct, frozen=True):
    """`call` gets `answer` when every one of `matches` holds; without matches, always.

    The first rule of a call that holds answers.
    """

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
    """A call that is refused for some arguments and allowed for all others.

    Refusals that hold for the same arguments give the same answer.
    """

    call: str
    reason: str
    refuse: tuple[tuple[int, tuple[ArgumentMatch, ...]], ...]

    def rules(self) -> Iterator[SyscallRule]:
        for answer, matches in self.refuse:
            yield SyscallRule(self.call, answer, matches)
        yield SyscallRule(self.call, ALLOW)


def int_is(arg: int, *values: int) -> ArgumentMatch:
    """An `int` argument is one of the values."""
    return ArgumentMatch(arg, INT_MASK, values)


def int_outside(arg: int, values: Iterable[int]) -> ArgumentMatch:
    """An `int` argument is none of the values."""
    return ArgumentMatch(arg, INT_MASK, tuple(sorted(values)), inside=False)


def has_bits(arg: int, bits: int) -> ArgumentMatch:
    """At least one of the bits is set."""
    return ArgumentMatch(arg, bits, (0,), inside=False)
