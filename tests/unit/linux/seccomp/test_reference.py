"""Our programs answer as libseccomp's do for the same rules, for every spec that exists."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable

import pytest
from support.bpf import AARCH64, ARM, I386, NO_CALL, X32_BIT, X86_64, run, says, verify

from sandboxd.linux.seccomp import FilterSpec
from sandboxd.linux.seccomp.compiler import assemble, call_number, default_answer, rules_for
from sandboxd.linux.seccomp.rules import ArgumentMatch, SyscallRule

pyseccomp = pytest.importorskip("pyseccomp")
libseccomp = pytest.importorskip("support.libseccomp")

ALL_SPECS = [
    FilterSpec(level, families, no_namespaces, deny_inet, refused_by_init=refused_by_init)
    for level in ("inherit", "baseline", "strict")
    for families, no_namespaces, deny_inet, refused_by_init in itertools.product(
        (False, True), repeat=4
    )
]
# One spec for each filter: flags that do not count at a level leave the rules as they are.
SPECS = list({(rules_for(spec), default_answer(spec)): spec for spec in ALL_SPECS}.values())
NUMBERS = (*range(601), X32_BIT - 1, NO_CALL - 1, NO_CALL)
BITS = [1 << bit for bit in range(64)]
ALL_ONES = (1 << 64) - 1
RANDOM_CALLS = 3000

Rules = list[SyscallRule]
Args = tuple[int, ...]


def translated(spec: FilterSpec, arch: int) -> Rules:
    """libseccomp translates numbers for another architecture only if it knows their names."""
    native = pyseccomp.Arch.NATIVE
    return [
        rule
        for rule in rules_for(spec)
        if arch == pyseccomp.system_arch()
        or (isinstance(rule.call, str) and pyseccomp.resolve_syscall(native, rule.call) != -1)
    ]


def by_number(rules: Rules, arch: int) -> dict[int, Rules]:
    calls: dict[int, Rules] = {}
    for rule in rules:
        calls.setdefault(call_number(pyseccomp, rule.call, arch), []).append(rule)
    return calls


def asked(rules: Rules) -> list[ArgumentMatch]:
    return [match for rule in rules for match in rule.matches]


def interesting(matches: Iterable[ArgumentMatch], arg: int) -> list[int]:
    """Every constant of the argument, one less and one more, each bit, garbage above."""
    constants = {0, ALL_ONES}
    for match in matches:
        if match.arg == arg:
            constants |= {match.mask, ~match.mask & ALL_ONES, *match.values}
    near = {value + step & ALL_ONES for value in constants for step in (-1, 0, 1)}
    flipped = {value ^ bit for value in constants for bit in BITS[:32]}
    garbage = {value | 0xDEAD_BEEF << 32 for value in near}
    return sorted(near | flipped | garbage | set(BITS))


def settings(rules: Rules) -> set[Args]:
    """Arguments that decide each match of the rules both ways, in every combination."""
    values: list[set[int]] = [{0} for _ in range(6)]
    for match in asked(rules):
        values[match.arg] |= {*match.values, match.mask & ~match.values[0], 63}
    return set(itertools.product(*values))


def telling(rules: Rules) -> set[Args]:
    found = settings(rules)
    for arg in {match.arg for match in asked(rules)}:
        for other in settings([r for r in rules if {m.arg for m in r.matches} - {arg}]):
            found |= {
                (*other[:arg], value, *other[arg + 1 :]) for value in interesting(asked(rules), arg)
            }
    return found


def random_calls(rules: Rules, numbers: list[int], seed: int) -> Iterable[tuple[int, Args]]:
    source = random.Random(seed)
    constants = [0, ALL_ONES, *BITS]
    for match in asked(rules):
        constants += [match.mask, *match.values]
    for _ in range(RANDOM_CALLS):
        args = tuple(
            source.choice((source.choice(constants), source.getrandbits(64), source.randrange(64)))
            for _ in range(6)
        )
        yield source.choice(numbers), args


@pytest.mark.parametrize("arch", [X86_64, AARCH64], ids=hex)
@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_every_spec_answers_as_libseccomp_does(spec: FilterSpec, arch: int) -> None:
    default, rules = default_answer(spec), translated(spec, arch)
    ours = assemble(rules, default=default, arch=arch)
    verify(ours)
    theirs = libseccomp.reference(rules, default=default, arch=arch)

    def same(number: int, args: Args = (), entry: int = arch) -> None:
        answer = run(ours, number, args, entry)
        assert answer == run(theirs, number, args, entry), (hex(number), args, hex(entry))

    for number in NUMBERS:
        for entry in (X86_64, AARCH64, I386, ARM):
            same(number, entry=entry)
        same(number, (ALL_ONES,) * 6)
        same(number | X32_BIT)
    calls = by_number(rules, arch)
    for number, known in calls.items():
        for args in telling(known) if number >= 0 and len(known) > 1 else ():
            same(number, args)
            assert run(ours, number, args, arch) == says(known, args, default=default)
    gated = [number for number, known in calls.items() if number >= 0 and asked(known)]
    for number, args in random_calls(rules, [*gated, *range(0, 600, 7)], seed=SPECS.index(spec)):
        same(number, args)


def test_the_reference_reads_rules_in_their_order() -> None:
    """The blocks of values that libseccomp gets give each argument one answer: the rules'."""
    source = random.Random(1)
    for spec in SPECS[::4]:
        for number, rules in by_number(rules_for(spec), pyseccomp.system_arch()).items():
            blocks = list(libseccomp.disjoint(rules))
            for args in source.sample(sorted(telling(rules)), min(50, len(telling(rules)))):
                hit = [
                    answer
                    for answer, block in blocks
                    if all(args[arg] & mask == value for arg, (mask, value) in block.items())
                ]
                wanted = says(rules, args, default=default_answer(spec))
                assert hit == [wanted], (number, args)
