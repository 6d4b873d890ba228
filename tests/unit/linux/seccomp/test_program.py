"""The compiled programs say what the rules say, for every call and every argument.

The programs are run by a small interpreter of classic BPF, so that arm64's are tested too. What
they answer beside libseccomp's is in test_reference.
"""

from __future__ import annotations

import itertools
import platform
from errno import EAFNOSUPPORT, ENOSYS, EPERM, EPROTONOSUPPORT
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import bpf
from support.bpf import AARCH64, ARM, I386, X32_BIT, X86_64

from sandboxd.linux.seccomp import FilterSpec, baseline, compile_filter, gates, set_id_files, strict
from sandboxd.linux.seccomp.compiler import assemble, call_number, default_answer, rules_for
from sandboxd.linux.seccomp.numbers import FUTURE_CALLS, NEW_CALLS
from sandboxd.linux.seccomp.rules import ALLOW, KILL, ArgumentRule, SyscallRule
from sandboxd.linux.seccomp.sockets import socket_gates

pyseccomp = pytest.importorskip("pyseccomp")

NATIVE = {"x86_64": X86_64, "aarch64": AARCH64}[platform.machine()]
KNOWN_NUMBERS = range(600)
GARBAGE = 0xDEAD_0000_0000_0000

SPECS = [
    FilterSpec(level, families, no_namespaces, deny_inet)
    for level in ("inherit", "baseline", "strict")
    for families, no_namespaces, deny_inet in itertools.product((False, True), repeat=3)
]
LOADED = SPECS
NON_BLOCKING, CLOSE_ON_EXEC = 0o4000, 0o2_000_000
KINDS = (0, 1, 2, 3, 5, 10, CLOSE_ON_EXEC | 1, NON_BLOCKING | 2, CLOSE_ON_EXEC | 10)


def run(program: bytes, number: int, args: tuple[int, ...] = (), arch: int = NATIVE) -> int:
    return bpf.run(program, number, args, arch)


@cache
def rules_of(spec: FilterSpec, call: str | int) -> list[SyscallRule]:
    return [rule for rule in rules_for(spec) if rule.call == call]


def expected(spec: FilterSpec, call: str | int, args: tuple[int, ...]) -> int:
    """What the rules say about a call; those that compare arguments must not contradict."""
    rules = rules_of(spec, call)
    answers = {
        rule.answer
        for rule in rules
        if rule.matches and all(bpf.matches(match, args) for match in rule.matches)
    }
    assert len(answers) <= 1, f"{call}{args}: contradicting rules"
    return bpf.says(rules, args, default=default_answer(spec))


@cache
def number_of(call: str) -> int:
    return call_number(pyseccomp, call)


def answer(spec: FilterSpec, call: str, *args: int) -> int:
    program = compile_filter(spec)
    assert program is not None
    return run(program, number_of(call), args)


def gate_list(spec: FilterSpec) -> tuple[ArgumentRule, ...]:
    fixed = (gates.CLONE, gates.UNSHARE, gates.IOCTL, gates.PTRACE, gates.PERSONALITY)
    return (*socket_gates(spec), *set_id_files.GATES, *fixed, *gates.OTHER_PROCESSES)


def telling_arguments(gate: ArgumentRule) -> list[tuple[int, ...]]:
    """Arguments that hit each case of the gate, and others that miss it by one bit."""
    found = {(0,) * 4, (0xFFFF_FFFF,) * 4}
    for _, case in gate.refuse:
        hit = [0, 0, 0, 0]
        for match in case:
            for value in (*match.values, match.mask & ~match.values[0]):
                hit[match.arg] = value
                found.add(tuple(hit))
            if match.inside:
                hit[match.arg] = match.values[0]
        for match in case:
            for bit in (1, match.mask & -match.mask):
                miss = list(hit)
                miss[match.arg] ^= bit
                found.add(tuple(miss))
    return sorted(found)


def test_nothing_is_loaded_for_commands_without_a_sandbox() -> None:
    assert compile_filter(FilterSpec("inherit", False, unconfined=True)) is None
    assert compile_filter(FilterSpec("inherit", False)) is not None


def test_a_program_is_compiled_once_for_each_spec() -> None:
    one = compile_filter(FilterSpec("baseline", True))
    assert one is compile_filter(FilterSpec("baseline", True))
    assert one != compile_filter(FilterSpec("baseline", False))


@pytest.mark.parametrize("spec", LOADED, ids=str)
def test_every_number_gets_the_answer_of_its_rule(spec: FilterSpec) -> None:
    program = compile_filter(spec)
    assert program is not None
    named: dict[int, str | int] = {
        number_of(rule.call) if isinstance(rule.call, str) else rule.call: rule.call
        for rule in rules_for(spec)
    }
    for number in KNOWN_NUMBERS:
        call = named.get(number)
        wanted = default_answer(spec) if call is None else expected(spec, call, ())
        assert run(program, number) == wanted, (number, call)


@pytest.mark.parametrize("spec", LOADED, ids=str)
def test_every_gate_answers_by_its_arguments(spec: FilterSpec) -> None:
    program = compile_filter(spec)
    assert program is not None
    for gate in gate_list(spec):
        number = number_of(gate.call)
        for args in telling_arguments(gate):
            wanted = expected(spec, gate.call, args)
            assert run(program, number, args) == wanted, (gate.call, args)
            garbled = tuple(arg | GARBAGE for arg in args)
            assert run(program, number, garbled) == wanted, (gate.call, garbled)


@pytest.mark.parametrize("spec", LOADED, ids=str)
def test_sockets_of_every_family_and_kind_get_the_answer_of_the_rules(spec: FilterSpec) -> None:
    """Several arguments at once."""
    for args in itertools.product(range(48), KINDS, (0, 1, 4, 6, 15, 16, 17)):
        for call in ("socket", "socketpair"):
            assert answer(spec, call, *args) == expected(spec, call, args), (call, args)
    for args in itertools.product(range(4), (0, 1, 2, 3, 4096)):
        for call in ("setpriority", "ioprio_set"):
            assert answer(spec, call, *args) == expected(spec, call, args), (call, args)


@given(
    st.sampled_from(LOADED),
    st.sampled_from(("socket", "socketpair", "clone", "unshare", "ioctl", "personality")),
    st.tuples(*[st.integers(0, 2**64 - 1) | st.integers(0, 64)] * 3),
)
def test_random_arguments_get_the_answer_of_the_rules(
    spec: FilterSpec, call: str, args: tuple[int, ...]
) -> None:
    assert answer(spec, call, *args) == expected(spec, call, args)


@pytest.mark.parametrize("arch", [X86_64, AARCH64], ids=hex)
def test_every_name_has_a_number_of_its_own(arch: int) -> None:
    """The first rule of a number answers: a second name would not be heard."""
    named: dict[int, str | int] = {}
    for spec in SPECS:
        for rule in rules_for(spec):
            number = call_number(pyseccomp, rule.call, arch)
            assert number < 0 or named.setdefault(number, rule.call) == rule.call


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_programs_are_short(spec: FilterSpec) -> None:
    """Every command loads one: 0.2 us for each instruction."""
    assert len(compile_filter(spec) or b"") // 8 <= 180


@pytest.mark.parametrize("spec", LOADED, ids=str)
def test_foreign_entry_kills(spec: FilterSpec) -> None:
    program = compile_filter(spec)
    assert program is not None
    for arch in {I386, X86_64, AARCH64, ARM} - {NATIVE}:
        assert run(program, 20, arch=arch) == KILL
    if NATIVE == X86_64:
        assert all(run(program, X32_BIT | number) == KILL for number in KNOWN_NUMBERS)


@pytest.mark.parametrize("no_namespaces", [False, True])
@pytest.mark.parametrize("restrict", [False, True])
def test_strict_allows_nothing_that_baseline_refuses(restrict: bool, no_namespaces: bool) -> None:
    """Looked at call by call and for all telling arguments."""
    loose = FilterSpec("baseline", restrict, no_namespaces)
    tight = FilterSpec("strict", restrict, no_namespaces)
    for group in baseline.DENIED:
        for call in group.calls:
            if number_of(call) >= 0:
                assert answer(tight, call) != ALLOW, call
    for gate in gate_list(loose):
        for args in telling_arguments(gate):
            if answer(loose, gate.call, *args) != ALLOW:
                assert answer(tight, gate.call, *args) != ALLOW, (gate.call, args)


def test_no_call_is_both_allowed_and_refused_by_strict() -> None:
    calls = [call for group in strict.ALLOWED + strict.REFUSED for call in group.calls]
    assert len(calls) == len(set(calls))


@pytest.mark.parametrize("groups", [baseline.DENIED, strict.ALLOWED, strict.REFUSED])
def test_every_group_says_why(groups: tuple[baseline.Group, ...]) -> None:
    assert all(group.reason.strip() and group.calls for group in groups)


def test_a_misspelt_call_is_an_error() -> None:
    with pytest.raises(LookupError, match="opneat"):
        assemble([SyscallRule("opneat", EPERM)], default=ALLOW)


def test_the_table_of_new_calls_agrees_with_libseccomp() -> None:
    for call, number in NEW_CALLS.items():
        known = pyseccomp.resolve_syscall(pyseccomp.Arch.NATIVE, call)
        assert known < 0 or known == number, call
    assert max(NEW_CALLS.values()) < FUTURE_CALLS.start


def test_calls_of_kernels_to_come_are_unknown_rather_than_fatal_under_strict() -> None:
    program = compile_filter(FilterSpec("strict", False))
    assert program is not None
    assert {run(program, number) for number in FUTURE_CALLS} == {ENOSYS}


@pytest.mark.parametrize("level", ["inherit", "baseline", "strict"])
def test_a_network_namespace_comes_with_four_families(level: str) -> None:
    spec = FilterSpec(level, True)  # type: ignore[arg-type]
    allowed = {family for family in range(64) if answer(spec, "socket", family) == ALLOW}
    assert allowed == {1, 2, 10, 16}
    assert answer(spec, "socket", 40) == EAFNOSUPPORT
    assert answer(spec, "socket", 16, 3, 15) == EPROTONOSUPPORT
    assert answer(spec, "socket", 2, 10) == EPERM
    assert answer(spec, "io_uring_setup") in (EPERM, ENOSYS)


@pytest.mark.parametrize("level", ["inherit", "baseline", "strict"])
def test_without_namespaces_and_network_no_socket_can_be_made(level: str) -> None:
    spec = FilterSpec(level, True, no_namespaces=True, deny_inet=True)  # type: ignore[arg-type]
    assert all(answer(spec, "socket", family, 1) in (EPERM, EAFNOSUPPORT) for family in range(64))
    assert answer(spec, "socketpair", 1, 1) == ALLOW


def test_strict_kills_what_only_exploits_call() -> None:
    spec = FilterSpec("strict", False)
    for call in ("bpf", "mount", "init_module", "kexec_load", "open_by_handle_at", "pidfd_getfd"):
        assert answer(spec, call) == KILL, call


def test_arm64_programs_say_the_same() -> None:
    for level in ("baseline", "strict"):
        spec = FilterSpec(level, True, no_namespaces=True)  # type: ignore[arg-type]
        program = assemble(rules_for(spec), default=default_answer(spec), arch=AARCH64)
        assert run(program, 20, arch=I386) == KILL
        for call, args in (
            ("openat", ()),
            ("bpf", ()),
            ("clone3", ()),
            ("clone", (0x1000_0000,)),
            ("clone", (17,)),
            ("ioctl", (0, 0x5412)),
            ("ioctl", (0, 0x5401)),
            ("socket", (40,)),
            ("socket", (10, 1)),
            ("prlimit64", (1,)),
            ("setns", ()),
            ("mseal", ()),
        ):
            number = call_number(pyseccomp, call, AARCH64)
            found = run(program, number, args, arch=AARCH64)
            assert found == expected(spec, call, args), (level, call, args)


CREATES, TMPFILE, FOLDER_ONLY = 0o101, 0o20_200_001, 0o200_000


@pytest.mark.parametrize("spec", LOADED, ids=str)
def test_set_user_id_is_refused_and_set_group_id_kept_by_chmod(spec: FilterSpec) -> None:
    calls = (("chmod", (1,)), ("fchmod", (3,)), ("fchmodat", (3, 1)), ("fchmodat2", (3, 1)))
    for call, before in calls:
        for mode in (0, 0o755, 0o2775, 0o1777, GARBAGE | 0o111):
            assert answer(spec, call, *before, mode) == ALLOW
        for mode in (0o4755, 0o4000, 0o6755, 0o7777, GARBAGE | 0o4111):
            assert answer(spec, call, *before, mode) == EPERM


@pytest.mark.parametrize("spec", LOADED, ids=str)
def test_no_file_is_made_with_a_set_id_bit(spec: FilterSpec) -> None:
    set_id_modes = (0o4755, 0o2755, 0o6000, GARBAGE | 0o4755)
    for call, before in (("open", (1,)), ("openat", (3, 1))):
        for flags in (CREATES, TMPFILE, GARBAGE | CREATES):
            assert answer(spec, call, *before, flags, 0o1777) == ALLOW
            assert {answer(spec, call, *before, flags, m) for m in set_id_modes} == {EPERM}
        for flags in (0, FOLDER_ONLY):  # the mode is not read
            assert {answer(spec, call, *before, flags, m) for m in set_id_modes} == {ALLOW}
    for call, before in (("creat", (1,)), ("mknod", (1,)), ("mknodat", (3, 1))):
        assert answer(spec, call, *before, 0o10644) == ALLOW
        assert {answer(spec, call, *before, 0o100000 | m) for m in set_id_modes} == {EPERM}


@pytest.mark.parametrize("spec", LOADED, ids=str)
def test_what_makes_files_past_the_filter_is_refused(spec: FilterSpec) -> None:
    assert answer(spec, "openat2", 3, 1, 1, 24) == ENOSYS
    for call in ("io_uring_setup", "io_uring_enter", "io_uring_register"):
        assert answer(spec, call) in (EPERM, ENOSYS)
