"""Calls that are refused for some arguments only: namespaces, terminals, tracing, other pids."""

from __future__ import annotations

from errno import EPERM

from sandboxd.linux.seccomp.rules import (
    ArgumentMatch,
    ArgumentRule,
    has_bits,
    int_is,
    int_outside,
)

# CLONE_NEW*: mnt, cgroup, uts, ipc, user, pid, net.
NEW_NAMESPACES = (
    0x0002_0000, 0x0200_0000, 0x0400_0000, 0x0800_0000, 0x1000_0000, 0x2000_0000, 0x4000_0000,
)  # fmt: skip
# CLONE_NEWTIME shares its bit with clone()'s exit signal: only unshare (and clone3) knows it.
NEW_TIME = 0x0000_0080

F_SETLEASE, F_SETDELEG = 1024, 1040
F_SET_RW_HINT, F_SET_FILE_RW_HINT = 1036, 1038
TIOCSTI, TIOCLINUX, TIOCSETD = 0x5412, 0x541C, 0x5423

PTRACE_ATTACH, PTRACE_SEIZE = 16, 0x4206

READ_IMPLIES_EXEC, MMAP_PAGE_ZERO = 0x0040_0000, 0x0010_0000
# personality(0xffffffff) asks and sets nothing. Any other value is set, whatever its top bit.
ASK = 0xFFFF_FFFF


def _without_flags(call: str, reason: str, flags: tuple[int, ...]) -> ArgumentRule:
    return _refuse(call, reason, (has_bits(0, sum(flags)),))


def _never(call: str, reason: str, arg: int, values: tuple[int, ...]) -> ArgumentRule:
    return _refuse(call, reason, (int_is(arg, *values),))


def _only(call: str, reason: str, arg: int, value: int) -> ArgumentRule:
    return _refuse(call, reason, (int_outside(arg, {value}),))


def _refuse(call: str, reason: str, *cases: tuple[ArgumentMatch, ...]) -> ArgumentRule:
    return ArgumentRule(call, reason, tuple((EPERM, case) for case in cases))


_NESTED = (
    "a nested user namespace has every capability inside: it remounts over protected files and "
    "opens most of the kernel's privileged code to exploits. Threads and processes stay"
)

CLONE = _without_flags("clone", _NESTED, NEW_NAMESPACES)
UNSHARE = _without_flags("unshare", _NESTED, (*NEW_NAMESPACES, NEW_TIME))

IOCTL = _never(
    "ioctl",
    "TIOCSTI types into the terminal, TIOCLINUX pastes into a console, TIOCSETD loads line "
    "disciplines (kernel code that only modems and exploits use)",
    1,
    (TIOCSTI, TIOCLINUX, TIOCSETD),
)

# In every filter, `inherit` included: files that all sandboxes read belong to the command's user.
LEASES_AND_HINTS = _never(
    "fcntl",
    "who holds a lease on a file makes every other process wait that opens it, and a hint about "
    "writes stays with the file after the sandbox. Both need no right to write it",
    1,
    (F_SETLEASE, F_SETDELEG, F_SET_RW_HINT, F_SET_FILE_RW_HINT),
)

# In every filter too: the init has the command's user.
LIMITS_OF_OTHERS = _only(
    "prlimit64",
    "an init that may open no more files finds no process that it has to end. The caller's own "
    "pid cannot be told from another one's: 0 (the caller) only",
    0,
    0,
)

# In `inherit` too: no signal ends two processes that attach to each other and ask for exit events.
PTRACE = _never(
    "ptrace",
    "attaching to a process that runs already; TRACEME stays, so gdb and strace can run a "
    "program. LeakSanitizer attaches to its own threads: ASAN_OPTIONS=detect_leaks=0",
    0,
    (PTRACE_ATTACH, PTRACE_SEIZE),
)

PERSONALITY = _refuse(
    "personality",
    "READ_IMPLIES_EXEC and MMAP_PAGE_ZERO undo memory protection; gdb's and SBCL's "
    "ADDR_NO_RANDOMIZE and setarch's linux32 stay",
    (
        int_outside(0, {ASK}),
        has_bits(0, READ_IMPLIES_EXEC | MMAP_PAGE_ZERO),
    ),
)

_OTHERS = (
    "acts on any process of the same user, and Landlock does not stop it: 0 (the caller) only. "
    "The caller's own pid cannot be told from another one's, so it is refused too"
)

# Without a pid namespace every process of the user is in reach.
OTHER_PROCESSES = (
    _only("sched_setaffinity", _OTHERS, 0, 0),
    _only("sched_setattr", _OTHERS, 0, 0),
    _only("sched_setparam", _OTHERS, 0, 0),
    _only("sched_setscheduler", _OTHERS, 0, 0),
    _refuse(
        "setpriority",
        "PRIO_PGRP and PRIO_USER reach all processes of the user; " + _OTHERS,
        (int_outside(0, {0}),),
        (int_outside(1, {0}),),
    ),
    _refuse(
        "ioprio_set",
        "IOPRIO_WHO_PGRP and _USER reach all processes of the user; " + _OTHERS,
        (int_outside(0, {1}),),
        (int_outside(1, {0}),),
    ),
)

_INIT = (
    "the init has the command's user: without CPU time it neither ends nor reports processes. "
    "Process 1 and all processes of the user are refused"
)


# In a pid namespace. With an allowlist as default, `OTHER_PROCESSES` takes their place.
PRIORITY_OF_INIT = (
    _refuse("sched_setaffinity", _INIT, (int_is(0, 1),)),
    _refuse("sched_setattr", _INIT, (int_is(0, 1),)),
    _refuse("sched_setparam", _INIT, (int_is(0, 1),)),
    _refuse("sched_setscheduler", _INIT, (int_is(0, 1),)),
    _refuse("setpriority", _INIT, (int_is(0, 2),), (int_is(1, 1),)),  # PRIO_USER
    _refuse("ioprio_set", _INIT, (int_is(0, 3),), (int_is(1, 1),)),  # IOPRIO_WHO_USER
)
