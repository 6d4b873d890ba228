"""Classic BPF as seccomp uses it: an interpreter, a verifier, and what rules say without either."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from functools import cache

from sandboxd.linux.seccomp.rules import ALLOW, INT_MASK, KILL, ArgumentMatch, SyscallRule

X86_64, AARCH64, I386, ARM = 0xC000_003E, 0xC000_00B7, 0x4000_0003, 0x4000_0028
X32_BIT = 0x4000_0000
NO_CALL = 0xFFFF_FFFF

LOAD, STORE, RECALL, AND, RETURN = 0x20, 0x02, 0x60, 0x54, 0x06
JUMP, IS, ABOVE, AT_LEAST, HAS_BITS = 0x05, 0x15, 0x25, 0x35, 0x45
CONDITIONAL = (IS, ABOVE, AT_LEAST, HAS_BITS)

NUMBER, ARCH = 0, 4
LOW_WORDS = range(16, 64, 8)  # of the arguments
LONGEST = 4096
FARTHEST = 255  # of a conditional jump

Instruction = tuple[int, int, int, int]


@cache
def decoded(program: bytes) -> list[Instruction]:
    return list(struct.iter_unpack("<HBBI", program))


def run(program: bytes, number: int, args: Iterable[int] = (), arch: int = X86_64) -> int:
    """The program's answer, in the terms of `rules`."""
    words = [number & INT_MASK, arch, 0, 0]
    for arg in args:
        words += [arg & INT_MASK, arg >> 32 & INT_MASK]
    words += [0] * (16 - len(words))
    code, accumulator, at, memory = decoded(program), 0, 0, [0] * 16
    while True:
        op, yes, no, k = code[at]
        at += 1
        if op == LOAD:
            accumulator = words[k // 4]
        elif op == IS:
            at += yes if accumulator == k else no
        elif op == AT_LEAST:
            at += yes if accumulator >= k else no
        elif op == ABOVE:
            at += yes if accumulator > k else no
        elif op == HAS_BITS:
            at += yes if accumulator & k else no
        elif op == AND:
            accumulator &= k
        elif op == JUMP:
            at += k
        elif op == STORE:
            memory[k] = accumulator
        elif op == RECALL:
            accumulator = memory[k]
        elif op == RETURN:
            return _answer(k)
        else:
            raise AssertionError(f"unexpected instruction {op:#x}")


def _answer(action: int) -> int:
    if action == 0x7FFF_0000:
        return ALLOW
    if action == 0x8000_0000:
        return KILL
    assert action >> 16 == 0x0005, hex(action)
    return action & 0xFFFF


def verify(program: bytes) -> None:
    """What has to hold for each program of our own assembler, on every way through it.

    Jumps stay inside, every way ends in an answer, no instruction is without a way to it. Each
    comparison sees one field, whichever way leads to it: numbers are not taken for arguments.
    """
    code = decoded(program)
    assert 0 < len(code) <= LONGEST
    assert code[0] == (LOAD, 0, 0, ARCH)
    fields: dict[int, tuple[int, int] | None] = {0: None}
    for at, (op, yes, no, k) in enumerate(code):  # jumps lead forward: ways to `at` are known
        assert at in fields, f"{at} cannot be reached"
        field = fields[at]
        after = [at + 1]
        if op == LOAD:
            assert k in (NUMBER, ARCH, *LOW_WORDS)
            field = (k, INT_MASK)
        elif op == AND:
            assert field is not None, f"{at} may see several fields"
            assert field[0] in LOW_WORDS
            assert field[1] == INT_MASK
            field = (field[0], k)
        elif op == JUMP:
            after = [at + 1 + k]
        elif op in CONDITIONAL:
            assert field is not None, f"{at} may see several fields"
            assert k & ~field[1] == 0
            after = [at + 1 + yes, at + 1 + no]
        else:
            assert op == RETURN
            _answer(k)
            after = []
        for target in after:
            assert at < target < len(code), f"{at} leads outside"
            if fields.setdefault(target, field) != field:
                fields[target] = None  # it depends on the way: only an answer or a load may follow


def says(rules: Iterable[SyscallRule], args: tuple[int, ...], *, default: int) -> int:
    """The answer of the rules of one call."""
    for rule in rules:
        if all(matches(match, args) for match in rule.matches):
            return rule.answer
    return default


def matches(match: ArgumentMatch, args: tuple[int, ...]) -> bool:
    word = args[match.arg] if match.arg < len(args) else 0
    return (word & match.mask in match.values) == match.inside
