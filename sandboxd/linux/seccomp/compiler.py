"""FilterSpec → rules → the BPF program that the init loads.

The numbers of the calls come from libseccomp. A program is compiled once for each spec.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from errno import ENOSYS
from functools import cache
from types import ModuleType

from sandboxd.linux.seccomp import baseline, gates, library, namespaceless, set_id_files, strict
from sandboxd.linux.seccomp.assembler import write_program
from sandboxd.linux.seccomp.numbers import FUTURE_CALLS, NEW_CALLS
from sandboxd.linux.seccomp.rules import ALLOW, KILL, ArgumentRule, RuleGroup, SyscallRule
from sandboxd.linux.seccomp.sockets import socket_gates
from sandboxd.linux.seccomp.spec import FilterSpec

# What seccomp_syscall_resolve_name returns for an unknown name. Names that exist on another
# architecture get other negative numbers.
UNKNOWN_CALL = -1


@cache
def compile_filter(spec: FilterSpec) -> bytes | None:
    """The program as an array of `struct sock_filter`; None when there is nothing to load.

    Entry for another architecture (int 0x80, x32, 32-bit arm) kills the process under every
    program: its numbers mean other calls, and a filter on `socket` alone would be passed by it.
    """
    return None if spec.unconfined else assemble(rules_for(spec), default=default_answer(spec))


def default_answer(spec: FilterSpec) -> int:
    """The answer for a call that has no rule."""
    return KILL if spec.level == "strict" else ALLOW


def rules_for(spec: FilterSpec) -> tuple[SyscallRule, ...]:
    """Every rule of the filter."""
    calls: dict[str | int, tuple[SyscallRule, ...]] = {}
    for group in _groups(spec):
        calls |= {call: (SyscallRule(call, group.answer),) for call in group.calls}
    calls |= {gate.call: tuple(gate.rules()) for gate in _gates(spec)}
    for group in namespaceless.REFUSED if spec.no_namespaces else ():
        calls |= {call: (SyscallRule(call, group.answer),) for call in group.calls}
    if spec.level == "strict":
        # Calls newer than this list: programs probe for them and fall back.
        calls |= {number: (SyscallRule(number, ENOSYS),) for number in FUTURE_CALLS}
    return tuple(rule for rules in calls.values() for rule in rules)


def _groups(spec: FilterSpec) -> tuple[RuleGroup, ...]:
    if spec.level == "strict":
        return strict.ALLOWED + strict.REFUSED
    if spec.level == "baseline":
        return (*baseline.DENIED, set_id_files.OPENAT2)
    # io_uring makes sockets and files without passing a filter. A key is found by its number in
    # every namespace: the user's, and those of other sandboxes.
    return (baseline.IO_URING, baseline.KEYRINGS, set_id_files.OPENAT2)


def _gates(spec: FilterSpec) -> tuple[ArgumentRule, ...]:
    chosen = (*socket_gates(spec), *set_id_files.GATES)
    chosen += (gates.LEASES_AND_HINTS, gates.LIMITS_OF_OTHERS)
    if spec.level == "strict":
        chosen += gates.OTHER_PROCESSES
    else:
        chosen += (*gates.PRIORITY_OF_INIT, gates.PTRACE)
    if spec.level != "inherit":
        chosen += (gates.CLONE, gates.UNSHARE, gates.IOCTL, gates.PERSONALITY)
    if spec.no_namespaces:
        chosen += namespaceless.GATES
    return chosen


def assemble(rules: Iterable[SyscallRule], *, default: int, arch: int = 0) -> bytes:
    """Compile for `arch` (an AUDIT_ARCH number; 0: this machine's)."""
    if sys.platform != "linux":
        raise OSError("seccomp filters exist on Linux only")
    pyseccomp = library.pyseccomp()  # late: it fails where there is no libseccomp
    arch = arch or pyseccomp.system_arch()
    calls: dict[int, list[SyscallRule]] = {}
    for rule in rules:
        number = call_number(pyseccomp, rule.call, arch)
        if number >= 0:
            calls.setdefault(number, []).append(rule)
    return write_program(calls, default=default, arch=arch)


def call_number(pyseccomp: ModuleType, call: str | int, arch: int = 0) -> int:
    """Negative for a call of other architectures."""
    if isinstance(call, int):
        return call
    number = int(pyseccomp.resolve_syscall(arch or pyseccomp.Arch.NATIVE, call))
    if number == UNKNOWN_CALL:
        number = NEW_CALLS.get(call, UNKNOWN_CALL)
    if number == UNKNOWN_CALL:
        raise LookupError(f"neither libseccomp nor the table of new calls knows {call!r}")
    return number
