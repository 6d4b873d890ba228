"""libseccomp's program for the same rules: the reference for our own assembler.

libseccomp has no order of rules and compares masked values only, so what the rules say is written
as blocks of values: each argument at most once, disjoint from those of other answers.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

import pyseccomp

from sandboxd.linux.seccomp.compiler import call_number
from sandboxd.linux.seccomp.rules import ALLOW, INT_MASK, KILL, ArgumentMatch, SyscallRule

# Argument → mask and value.
Block = dict[int, tuple[int, int]]


def reference(rules: Iterable[SyscallRule], *, default: int, arch: int = 0) -> bytes:
    program = pyseccomp.SyscallFilter(_action(default))
    program.set_attr(pyseccomp.Attr.ACT_BADARCH, pyseccomp.KILL_PROCESS)
    program.set_attr(pyseccomp.Attr.CTL_OPTIMIZE, 2)
    if arch not in (0, pyseccomp.system_arch()):
        program.add_arch(arch)
        program.remove_arch(pyseccomp.system_arch())
    calls: dict[str | int, list[SyscallRule]] = {}
    for rule in rules:
        calls.setdefault(rule.call, []).append(rule)
    for call, ordered in calls.items():
        for answer, block in disjoint(ordered):
            if answer != default:
                compared = [
                    pyseccomp.Arg(arg, pyseccomp.MASKED_EQ, mask, value)
                    for arg, (mask, value) in block.items()
                ]
                program.add_rule(_action(answer), call_number(pyseccomp, call), *compared)
    with os.fdopen(os.memfd_create("reference"), "w+b") as file:
        program.export_bpf(file)
        file.seek(0)
        return file.read()


def _action(answer: int) -> int:
    if answer == ALLOW:
        return int(pyseccomp.ALLOW)
    return int(pyseccomp.KILL_PROCESS if answer == KILL else pyseccomp.ERRNO(answer))


def disjoint(rules: Iterable[SyscallRule]) -> Iterator[tuple[int, Block]]:
    """Blocks of arguments, each with the answer of the first rule that holds for it."""
    left: list[Block] = [{}]
    for rule in rules:
        missed: list[Block] = []
        for match in rule.matches:
            missed += _meet(left, blocks(_opposite(match)))
            left = _meet(left, blocks(match))
        yield from ((rule.answer, block) for block in left)
        left = missed


def _meet(some: list[Block], others: list[Block]) -> list[Block]:
    met = [_both(one, other) for one in some for other in others]
    return [block for block in met if block is not None]


def _opposite(match: ArgumentMatch) -> ArgumentMatch:
    return ArgumentMatch(match.arg, match.mask, match.values, not match.inside)


def _both(one: Block, other: Block) -> Block | None:
    """Where both hold; None: nowhere."""
    joined = dict(one)
    for arg, (mask, value) in other.items():
        had_mask, had_value = joined.get(arg, (0, 0))
        if value & had_mask != had_value & mask:
            return None
        joined[arg] = (mask | had_mask, value | had_value)
    return joined


def blocks(match: ArgumentMatch) -> list[Block]:
    """Disjoint blocks that together hold where the match does."""
    if match.inside:
        return [{match.arg: (match.mask, value)} for value in match.values]
    bits = [1 << bit for bit in reversed(range(INT_MASK.bit_length())) if match.mask >> bit & 1]

    def walk(mask: int, value: int, left: list[int]) -> Iterator[Block]:
        if not any(kept & mask == value for kept in match.values):
            yield {match.arg: (mask, value)}
        elif left:
            yield from walk(mask | left[0], value, left[1:])
            yield from walk(mask | left[0], value | left[0], left[1:])

    return list(walk(0, 0, bits))
