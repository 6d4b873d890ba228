"""What an exit code of Windows says. Pure data."""

from __future__ import annotations

from sandboxd.types import LimitName
from sandboxd.windows import structures

KILLED = 0x40010004  # DBG_TERMINATE_PROCESS: ended by the daemon
JOB_TIME_LIMIT = 1816  # ERROR_NOT_ENOUGH_QUOTA: the exit code of processes ended for job time

# NTSTATUS → why, for codes with which a process ends before its program runs.
DENIED_AT_START = {
    0xC0000022: "STATUS_ACCESS_DENIED: the program or one of its files may not be read",
    0xC0000135: "STATUS_DLL_NOT_FOUND: a library is missing or may not be read",
    0xC0000142: "STATUS_DLL_INIT_FAILED: a library could not start, often for want of a desktop "
    "or of what an administrator has to prepare (sandboxctl doctor)",
    0xC000007B: "STATUS_INVALID_IMAGE_FORMAT: a library of the wrong kind was found",
}
# Message of a job's completion port → the limit that was reached.
LIMITS: dict[int, LimitName] = {
    structures.JOB_OBJECT_MSG_END_OF_JOB_TIME: "cpu",
    structures.JOB_OBJECT_MSG_END_OF_PROCESS_TIME: "cpu",
    structures.JOB_OBJECT_MSG_ACTIVE_PROCESS_LIMIT: "processes",
    structures.JOB_OBJECT_MSG_PROCESS_MEMORY_LIMIT: "memory",
    structures.JOB_OBJECT_MSG_JOB_MEMORY_LIMIT: "memory",
}


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
