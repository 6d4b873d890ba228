"""The compiled programs say what the rules say, for every call and every argument.

The programs are run by a small interpreter of classic BPF, so that arm64's are tested too.
"""

from __future__ import annotations

import itertools
import platform
import struct
from errno import EAFNOSUPPORT, ENOSYS, EPERM, EPROTONOSUPPORT
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxd.linux.seccomp import FilterSpec, baseline, compile_filter, gates, set_id_files, strict
from sandboxd.linux.seccomp.compiler import assemble, call_number, default_answer, rules_for
from sandboxd.linux.seccomp.numbers import FUTURE_CALLS, NEW_CALLS
from sandboxd.linux.seccomp.rules import (
    ALLOW,
    KILL,
    ArgumentMatch,
    ArgumentRule,
    SyscallRule,
    int_outside,
)
from sandboxd.linux.seccomp.sockets import socket_gates

pyseccomp = pytest.importorskip("pyseccomp")

X86_64, AARCH64, I386 = 0xC000003E, 0xC00000B7, 0x40000003
NATIVE = {"x86_64": X86_64, "aarch64": AARCH64}[platform.machine()]
X32_BIT = 0x4000_0000
KNOWN_NUMBERS = range(600)
GARBAGE = 0xDEAD_0000_0000_0000

SPECS = [
    FilterSpec(level, families, no_namespaces, deny_inet)
    for level in ("inherit", "baseline", "strict")
    for families, no_namespaces, deny_inet in itertools.product((False, True), repeat=3)
]
LOADED = SPECS


def run(program: bytes, number: int, args: tuple[int, ...] = (), arch: int = NATIVE) -> int:
    """The program's answer, in the terms of `rules`."""
    words = [arg & (1 << 64) - 1 for arg in args] + [0] * (6 - len(args))
    data = struct.pack("<iIQ6Q", number, arch, 0, *words)
    code = decoded(program)
    accumulator, at, memory = 0, 0, [0] * 16
    while True:
        op, jump_true, jump_false, k = code[at]
        at += 1
        match op:
            case 0x20:  # ld [k]
                (accumulator,) = struct.unpack_from("<I", data, k)
            case 0x02:  # st M[k]
                memory[k] = accumulator
            case 0x60:  # ld M[k]
                accumulator = memory[k]
            case 0x54:  # and #k
                accumulator &= k
            case 0x05:  # ja
                at += k
            case 0x15:  # jeq
                at += jump_true if accumulator == k else jump_false
            case 0x25:  # jgt
                at += jump_true if accumulator > k else jump_false
            case 0x35:  # jge
                at += jump_true if accumulator >= k else jump_false
            case 0x06:  # ret
                return _answer(k)
            case _:
                raise AssertionError(f"an instruction that libseccomp did not use before: {op:#x}")


@cache
def decoded(program: bytes) -> list[tuple[int, int, int, int]]:
    return list(struct.iter_unpack("<HBBI", program))


def _answer(action: int) -> int:
    if action == 0x7FFF_0000:
        return ALLOW
    if action == 0x8000_0000:
        return KILL
    assert action >> 16 == 0x0005, hex(action)
    return action & 0xFFFF


@cache
def rules_of(spec: FilterSpec, call: str | int) -> list[SyscallRule]:
    return [rule for rule in rules_for(spec) if rule.call == call]


def expected(spec: FilterSpec, call: str | int, args: tuple[int, ...]) -> int:
    """What the rules say about a call, without libseccomp."""
    words = (*args, *[0] * (6 - len(args)))
    answers = {
        rule.answer
        for rule in rules_of(spec, call)
        if all(words[m.arg] & m.mask == m.value for m in rule.matches)
    }
    assert len(answers) <= 1, f"{call}{args}: contradicting rules"
    return answers.pop() if answers else default_answer(spec)


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
    for case in [*(matches for _, matches in gate.refuse), *gate.allow]:
        hit = [0, 0, 0, 0]
        for match in case:
            hit[match.arg] = match.value
        found.add(tuple(hit))
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
    """Several arguments at once: where libseccomp 2.5 was seen to mix them up."""
    for args in itertools.product(range(48), (0, 1, 2, 3, 5, 10), (0, 1, 4, 6, 15, 16, 17)):
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


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_gates_cover_every_argument_exactly_once(spec: FilterSpec) -> None:
    for gate in gate_list(spec):
        refusals = [matches for _, matches in gate.refuse]
        for args in telling_arguments(gate):
            words = (*args, *[0] * (6 - len(args)))
            refused = any(all(words[m.arg] & m.mask == m.value for m in case) for case in refusals)
            allowed = any(
                all(words[m.arg] & m.mask == m.value for m in case) for case in gate.allow
            )
            assert refused != allowed, (gate.call, args)


@pytest.mark.parametrize("spec", LOADED, ids=str)
def test_foreign_entry_kills(spec: FilterSpec) -> None:
    program = compile_filter(spec)
    assert program is not None
    for arch in {I386, X86_64, AARCH64, 0x4000_0028} - {NATIVE}:
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
    """Numbers of calls that this libseccomp does not know cannot be translated: left out."""
    for level in ("baseline", "strict"):
        spec = FilterSpec(level, True, no_namespaces=True)  # type: ignore[arg-type]
        default = default_answer(spec)
        rules = [
            rule
            for rule in rules_for(spec)
            if isinstance(rule.call, str)
            and pyseccomp.resolve_syscall(pyseccomp.Arch.NATIVE, rule.call) != -1
        ]
        program = assemble(rules, default=default, arch=AARCH64)
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
        ):
            number = pyseccomp.resolve_syscall(AARCH64, call)
            found = run(program, number, args, arch=AARCH64)
            assert found == expected(spec, call, args), (level, call, args)


@given(st.sets(st.integers(0, 255), max_size=6), st.integers(0, 255))
def test_blocks_outside_a_set_are_its_complement(values: set[int], probe: int) -> None:
    blocks = int_outside(0, values, bits=8)
    hits = [block for block in blocks if probe & block.mask == block.value]
    assert len(hits) == (0 if probe in values else 1)
    assert all(isinstance(block, ArgumentMatch) for block in blocks)


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
