"""What an exit code of Windows says. Pure data."""

from __future__ import annotations

from sandboxd.types import LimitName

KILLED = 0x40010004  # DBG_TERMINATE_PROCESS: ended by the daemon
CONTROL_C = 0xC000013A
JOB_TIME_LIMIT = 1816  # ERROR_NOT_ENOUGH_QUOTA: the exit code of processes ended for job time

# NTSTATUS → why, for codes with which a process ends before its program runs.
DENIED_AT_START = {
    0xC0000022: "STATUS_ACCESS_DENIED: the program or one of its files may not be read",
    0xC0000135: "STATUS_DLL_NOT_FOUND: a library is missing or may not be read",
    0xC0000142: "STATUS_DLL_INIT_FAILED: a library could not start, often for want of a desktop "
    "or of what an administrator has to prepare (sandboxctl doctor)",
    0xC000007B: "STATUS_INVALID_IMAGE_FORMAT: a library of the wrong kind was found",
}
FAULTS = {
    0xC0000005: "STATUS_ACCESS_VIOLATION",
    0xC000001D: "STATUS_ILLEGAL_INSTRUCTION",
    0xC0000094: "STATUS_INTEGER_DIVIDE_BY_ZERO",
    0xC00000FD: "STATUS_STACK_OVERFLOW",
    0xC0000017: "STATUS_NO_MEMORY",
    0xC0000374: "STATUS_HEAP_CORRUPTION",
    0xC0000409: "STATUS_STACK_BUFFER_OVERRUN",
    0x80000003: "STATUS_BREAKPOINT",
    CONTROL_C: "STATUS_CONTROL_C_EXIT",
}
# Message of a job's completion port → the limit that was reached.
LIMITS: dict[int, LimitName] = {1: "cpu", 2: "cpu", 3: "processes", 9: "memory", 10: "memory"}


def unsigned(code: int) -> int:
    return code & 0xFFFFFFFF


def start_denial(code: int | None) -> str | None:
    """Why the program did not start, if it printed nothing: one that did had started."""
    return None if code is None else DENIED_AT_START.get(unsigned(code))


def limit_of(messages: frozenset[int], code: int | None) -> LimitName | None:
    """The limit that ended a tree, by what its job said.

    A job tells of a refused process or allocation also when the program went on. Only job time
    ends a tree by itself.
    """
    if messages & {1, 2} or code == JOB_TIME_LIMIT:
        return "cpu"
    if code in (None, 0):
        return None
    return next((LIMITS[number] for number in (10, 9, 3) if number in messages), None)
