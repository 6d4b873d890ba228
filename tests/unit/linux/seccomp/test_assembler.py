"""The assembler: random rules against a plain reading of them, and the form of each program."""

from __future__ import annotations

import random
from errno import ENOSYS, EPERM

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.bpf import (
    AARCH64,
    FARTHEST,
    I386,
    JUMP,
    NO_CALL,
    RETURN,
    X32_BIT,
    X86_64,
    decoded,
    run,
    says,
    verify,
)

from sandboxd.linux.seccomp.assembler import write_program
from sandboxd.linux.seccomp.rules import ALLOW, INT_MASK, KILL, ArgumentMatch, SyscallRule

ARCHES = (X86_64, AARCH64)
ANSWERS = (ALLOW, KILL, EPERM, ENOSYS, 4095)
MASKS = (INT_MASK, 1, 2, 3, 0xF, 0o4000, 0o6000, 0x8000_0000, 0xF000_000F, 0x1030)

Calls = dict[int, list[SyscallRule]]


@st.composite
def matches(draw: st.DrawFn) -> ArgumentMatch:
    mask = draw(st.sampled_from(MASKS))
    words = st.integers(0, 3) | st.sampled_from(MASKS) | st.integers(0, INT_MASK)
    values = draw(st.sets(words.map(lambda word: word & mask), min_size=1, max_size=4))
    return ArgumentMatch(draw(st.integers(0, 2)), mask, tuple(values), draw(st.booleans()))


cases = st.tuples(st.sampled_from(ANSWERS), st.lists(matches(), max_size=3))
numbers = st.integers(0, 12) | st.integers(0, 600) | st.sampled_from((X32_BIT - 2, X32_BIT - 1))
rule_sets = st.dictionaries(numbers, st.lists(cases, max_size=4), max_size=12).map(
    lambda calls: {
        number: [SyscallRule(number, answer, tuple(asked)) for answer, asked in found]
        for number, found in calls.items()
    }
)


def expected(calls: Calls, number: int, args: tuple[int, ...], default: int, arch: int) -> int:
    if arch == X86_64 and X32_BIT <= number < NO_CALL:
        return KILL
    return says(calls.get(number, ()), args, default=default)


def random_word(source: random.Random, calls: Calls, number: int) -> int:
    asked = [match for rule in calls.get(number, ()) for match in rule.matches]
    constants = [word for match in asked for word in (match.mask, *match.values)]
    word = source.choice((*constants, 0, source.getrandbits(32), source.randrange(4)))
    word ^= source.choice((0, 0, 1, 1 << source.randrange(32)))
    return word | source.choice((0, source.getrandbits(32) << 32))


def check(calls: Calls, default: int, arch: int, source: random.Random, probes: int) -> bytes:
    program = write_program(calls, default=default, arch=arch)
    verify(program)
    near = {number + step for number in calls for step in (-1, 0, 1)}
    for number in sorted(near | {0, X32_BIT, X32_BIT + 1, NO_CALL - 1, NO_CALL}):
        for _ in range(probes):
            args = tuple(random_word(source, calls, number) for _ in range(3))
            wanted = expected(calls, number & INT_MASK, args, default, arch)
            assert run(program, number, args, arch) == wanted, (number, args)
        for entry in {X86_64, AARCH64, I386, 0} - {arch}:
            assert run(program, number, (), entry) == KILL
    return program


@given(rule_sets, st.sampled_from(ANSWERS), st.sampled_from(ARCHES), st.integers(0, 2**32))
def test_random_rules_are_answered_as_they_read(
    calls: Calls, default: int, arch: int, seed: int
) -> None:
    check(calls, default, arch, random.Random(seed), probes=25)


def large_rules(source: random.Random) -> Calls:
    """Enough for programs where conditional jumps do not reach."""

    def match() -> ArgumentMatch:
        mask = source.choice((INT_MASK, INT_MASK, *MASKS))
        values = {source.choice((source.randrange(4), source.getrandbits(32))) & mask}
        return ArgumentMatch(source.randrange(3), mask, tuple(values), source.random() < 0.7)

    return {
        number: [
            SyscallRule(number, source.choice(ANSWERS), tuple(match() for _ in range(many)))
            for many in source.choices((1, 2), k=2)
        ]
        for number in source.sample(range(600), 160)
    }


@pytest.mark.parametrize("seed", range(6))
def test_large_programs_are_bridged(seed: int) -> None:
    source = random.Random(seed)
    program = check(large_rules(source), source.choice(ANSWERS), X86_64, source, probes=20)
    ops = [op for op, *_ in decoded(program)]
    assert len(ops) > 3 * FARTHEST
    assert JUMP in ops
    assert ops.count(RETURN) > len(ANSWERS)


def test_a_program_depends_on_its_rules_only() -> None:
    calls = large_rules(random.Random(7))
    turned = dict(reversed(calls.items()))
    assert write_program(calls, default=ALLOW, arch=X86_64) == write_program(
        turned, default=ALLOW, arch=X86_64
    )


def test_equal_calls_share_one_piece_of_code() -> None:
    rules = (ArgumentMatch(1, INT_MASK, (7, 8)),)
    few = {number: [SyscallRule(number, EPERM, rules)] for number in (10, 20)}
    many = {number: [SyscallRule(number, EPERM, rules)] for number in (10, 20, *range(21, 40))}
    lengths = {len(write_program(calls, default=ALLOW, arch=X86_64)) for calls in (few, many)}
    assert len(lengths) == 1


def test_programs_that_the_kernel_would_refuse_are_not_written() -> None:
    calls = {
        number: [SyscallRule(number, EPERM, (ArgumentMatch(0, INT_MASK, (number,)),))]
        for number in range(3000)
    }
    with pytest.raises(ValueError, match="too long"):
        write_program(calls, default=ALLOW, arch=X86_64)


@pytest.mark.parametrize("number", [-1, X32_BIT, NO_CALL])
def test_a_number_outside_the_table_is_an_error(number: int) -> None:
    with pytest.raises(ValueError, match="not the number of a system call"):
        write_program({number: [SyscallRule(number, EPERM)]}, default=ALLOW, arch=X86_64)


def test_an_architecture_with_the_other_order_of_bytes_is_an_error() -> None:
    with pytest.raises(ValueError, match="little-endian"):
        write_program({}, default=ALLOW, arch=0x8000_0016)  # s390x


@pytest.mark.parametrize(
    ("arg", "mask", "values"),
    [(6, INT_MASK, (1,)), (0, 1 << 32, (0,)), (0, 0, (0,)), (0, 1, (2,)), (0, INT_MASK, ())],
)
def test_a_match_that_cannot_be_compared_is_an_error(
    arg: int, mask: int, values: tuple[int, ...]
) -> None:
    with pytest.raises(ValueError, match="ArgumentMatch"):
        ArgumentMatch(arg, mask, values)
