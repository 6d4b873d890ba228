"""Rules of one architecture → a short program of classic BPF.

Every command loads a program just before its exec, and the kernel takes about 0.2 us for each
instruction. libseccomp can only compare masked values, so that "none of these values" becomes
dozens of rules. Here the number of the call is found by a binary tree, each call has a decision
tree over its arguments, and equal trees are written once.

Programs are written from their end: classic BPF jumps forward only, so the distance of each target
is known when the jump to it is written.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias

import msgspec

from sandboxd.linux.seccomp.rules import ALLOW, INT_MASK, KILL, ArgumentMatch, SyscallRule

X86_64 = 0xC000_003E
LITTLE_ENDIAN = 0x4000_0000  # of an AUDIT_ARCH number
X32_BIT = 0x4000_0000
NO_CALL = 0xFFFF_FFFF  # -1: what a tracer writes over the number of a call that is not to be made

LOAD, AND, RETURN = 0x20, 0x54, 0x06  # ld [k], and #k, ret #k
JUMP, IS, AT_LEAST, HAS_BITS = 0x05, 0x15, 0x35, 0x45  # ja, jeq, jge, jset
FARTHEST = 255  # of a conditional jump
LONGEST = 4096  # BPF_MAXINSNS

# struct seccomp_data: int nr, u32 arch, u64 instruction_pointer, u64 args[6]
NUMBER, ARCH, ARGUMENTS = 0, 4, 16  # offsets


class Return(NamedTuple):
    answer: int


class Field(NamedTuple):
    """What is compared: a word of struct seccomp_data under a mask."""

    offset: int
    mask: int = INT_MASK


class Load(NamedTuple):
    field: Field
    then: Node


class Branch(NamedTuple):
    field: Field  # is loaded, whichever way leads here
    jump: int
    value: int
    yes: Node
    no: Node


Node: TypeAlias = Return | Load | Branch
Case = tuple[tuple[ArgumentMatch, ...], int]  # what must hold, and the answer


class Span(NamedTuple):
    """The numbers from `first` to `last` get the same answer."""

    first: int
    last: int
    node: Node


def write_program(calls: Mapping[int, Iterable[SyscallRule]], *, default: int, arch: int) -> bytes:
    """An array of `struct sock_filter`. The first rule of a call whose matches hold answers.

    Entry for another architecture than `arch` (an AUDIT_ARCH number), x32 included, kills.
    """
    if not arch & LITTLE_ENDIAN:
        raise ValueError(f"architecture {arch:#x}: only little-endian ones are supported")
    trees = {
        number: _decide([(rule.matches, rule.answer) for rule in rules], default, None)
        for number, rules in calls.items()
    }
    numbers = _number_tree(_joined(_spans(trees, Return(default), x32=arch == X86_64)))
    native = Branch(Field(ARCH), IS, arch, Load(Field(NUMBER), numbers), Return(KILL))
    writer = _Writer()
    writer.place(Load(Field(ARCH), native))
    return writer.program()


def _decide(cases: list[Case], default: int, loaded: Field | None) -> Node:
    """The tree that finds the first case whose matches hold; `loaded` is in the accumulator."""
    if not cases:
        return Return(default)
    matches, answer = cases[0]
    if not matches:
        return Return(answer)
    arg, mask, value = matches[0].arg, matches[0].mask, matches[0].values[0]
    by_bits = mask != INT_MASK and (value == 0 or (value == mask and mask.bit_count() == 1))
    field = Field(ARGUMENTS + 8 * arg, INT_MASK if by_bits else mask)
    yes = _decide(_narrow(cases, arg, mask, value, holds=True), default, field)
    no = _decide(_narrow(cases, arg, mask, value, holds=False), default, field)
    if yes == no:
        return _decide(_narrow(cases, arg, mask, value, holds=True), default, loaded)
    if not by_bits:
        branch = Branch(field, IS, value, yes, no)
    elif value:
        branch = Branch(field, HAS_BITS, mask, yes, no)
    else:
        branch = Branch(field, HAS_BITS, mask, no, yes)
    return branch if field == loaded else Load(field, branch)


def _narrow(cases: list[Case], arg: int, mask: int, value: int, *, holds: bool) -> list[Case]:
    """The cases that are still possible, without the matches that are already decided.

    Known is whether the argument, under `mask`, is `value`.
    """
    left: list[Case] = []
    for matches, answer in cases:
        asked = [
            _known(match, mask, value, holds=holds) if match.arg == arg else match
            for match in matches
        ]
        if False not in asked:
            left.append((tuple(m for m in asked if isinstance(m, ArgumentMatch)), answer))
    return left


def _known(match: ArgumentMatch, mask: int, value: int, *, holds: bool) -> ArgumentMatch | bool:
    """The match without the values that are ruled out; a bool when it is decided."""
    if holds:
        possible = tuple(v for v in match.values if v & mask == value & match.mask)
        if match.mask & ~mask == 0:
            return match.inside == bool(possible)
    else:
        within = mask & ~match.mask == 0
        possible = tuple(v for v in match.values if not (within and v & mask == value))
    return msgspec.structs.replace(match, values=possible) if possible else not match.inside


def _spans(trees: Mapping[int, Node], other: Node, *, x32: bool) -> list[Span]:
    """Every 32-bit number once; neighbours differ."""
    starts = {0: other}
    for number in sorted(trees):
        if not 0 <= number < X32_BIT:
            raise ValueError(f"{number} is not the number of a system call")
        starts |= {number: trees[number], number + 1: other}
    if x32:
        starts |= {X32_BIT: Return(KILL), NO_CALL: other}
    spans: list[Span] = []
    for first in sorted(starts, reverse=True):
        last = spans[-1].first - 1 if spans else INT_MASK
        if spans and spans[-1].node == starts[first]:
            last = spans.pop().last
        spans.append(Span(first, last, starts[first]))
    return spans[::-1]


def _joined(spans: list[Span]) -> list[Span]:
    """Three spans become one where a single number interrupts equal answers: one comparison."""
    joined: list[Span] = []
    at = 0
    while at < len(spans):
        span = spans[at]
        at += 1
        if at + 1 < len(spans) and spans[at].first == spans[at].last:
            number, after = spans[at], spans[at + 1]
            if after.node == span.node:
                node = Branch(Field(NUMBER), IS, number.first, number.node, span.node)
                span = Span(span.first, after.last, node)
                at += 2
        joined.append(span)
    return joined


def _number_tree(spans: list[Span]) -> Node:
    if len(spans) == 1:
        return spans[0].node
    middle = len(spans) // 2
    upper, lower = _number_tree(spans[middle:]), _number_tree(spans[:middle])
    return Branch(Field(NUMBER), AT_LEAST, spans[middle].first, upper, lower)


class _Writer:
    """Instructions from the last to the first, and where each node begins."""

    def __init__(self) -> None:
        self._code: list[tuple[int, int, int, int]] = []
        self._at: dict[Node, int] = {}

    def place(self, node: Node) -> None:
        """Write the node unless it is written."""
        if node in self._at:
            return
        match node:
            case Return(answer):
                self._add(RETURN, _action(answer))
            case Load(field, then):
                self.place(then)
                if self._distance(then):
                    self._add(JUMP, self._distance(then))
                if field.mask != INT_MASK:
                    self._add(AND, field.mask)
                self._add(LOAD, field.offset)
            case Branch(_, jump, value, yes, no):
                for child in (no, yes):
                    if not isinstance(child, Return):  # _bridge writes returns
                        self.place(child)
                while far := [n for n in (no, yes) if self._distance(n) > FARTHEST]:
                    self._bridge(far[0])
                self._add(jump, value, self._distance(yes), self._distance(no))
        self._at[node] = len(self._code) - 1

    def _bridge(self, node: Node) -> None:
        """Bring a node into the reach of the next instruction."""
        if isinstance(node, Return):
            self._add(RETURN, _action(node.answer))
        else:
            self._add(JUMP, self._distance(node))
        self._at[node] = len(self._code) - 1

    def _distance(self, node: Node) -> int:
        """From the next instruction; a node that is not written is out of reach."""
        return len(self._code) - 1 - self._at[node] if node in self._at else FARTHEST + 1

    def _add(self, op: int, k: int, yes: int = 0, no: int = 0) -> None:
        self._code.append((op, yes, no, k))

    def program(self) -> bytes:
        if len(self._code) > LONGEST:
            raise ValueError(f"a seccomp program of {len(self._code)} instructions is too long")
        return b"".join(struct.pack("<HBBI", *code) for code in reversed(self._code))


def _action(answer: int) -> int:
    """SECCOMP_RET_ALLOW, _KILL_PROCESS or _ERRNO."""
    if answer == ALLOW:
        return 0x7FFF_0000
    return 0x8000_0000 if answer == KILL else 0x0005_0000 | answer
