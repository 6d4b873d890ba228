"""What a job limits, as the structure that Windows takes and says back. Pure."""

from __future__ import annotations

import msgspec

from sandboxd.policy.plan import Limits
from sandboxd.windows.structures import (
    BELOW_NORMAL_PRIORITY_CLASS,
    JOB_OBJECT_LIMIT_ACTIVE_PROCESS,
    JOB_OBJECT_LIMIT_DIE_ON_UNHANDLED_EXCEPTION,
    JOB_OBJECT_LIMIT_JOB_MEMORY,
    JOB_OBJECT_LIMIT_JOB_TIME,
    JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE,
    JOB_OBJECT_LIMIT_PRIORITY_CLASS,
    JOB_OBJECT_LIMIT_PROCESS_MEMORY,
    JOBOBJECT_EXTENDED_LIMIT_INFORMATION,
)

PROCESS_MEMORY = 1 << 30
JOB_MEMORY = 2 << 30
ACTIVE_PROCESSES = 64
_TICKS_A_SECOND = 10_000_000  # of 100 ns
_PAGE = 4096
_UI_ALL = 0xFF
_UI_IME, _UI_INJECTION = 0x100, 0x200
_IME_BUILD, _INJECTION_BUILD = 22621, 26100


class JobLimits(msgspec.Struct, frozen=True):
    """`ui` 0: no UI limits. None: no such limit. Processes always end with the job's handle."""

    processes: int | None = None
    process_memory: int | None = None
    job_memory: int | None = None
    job_time_s: float | None = None
    below_normal: bool = False
    ui: int = 0

    def structure(self) -> JOBOBJECT_EXTENDED_LIMIT_INFORMATION:
        made = JOBOBJECT_EXTENDED_LIMIT_INFORMATION()
        basic = made.BasicLimitInformation
        flags = JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE | JOB_OBJECT_LIMIT_DIE_ON_UNHANDLED_EXCEPTION
        if self.processes is not None:
            flags |= JOB_OBJECT_LIMIT_ACTIVE_PROCESS
            basic.ActiveProcessLimit = self.processes
        if self.process_memory is not None:
            flags |= JOB_OBJECT_LIMIT_PROCESS_MEMORY
            made.ProcessMemoryLimit = _whole_pages(self.process_memory)
        if self.job_memory is not None:
            flags |= JOB_OBJECT_LIMIT_JOB_MEMORY
            made.JobMemoryLimit = _whole_pages(self.job_memory)
        if self.job_time_s is not None:
            flags |= JOB_OBJECT_LIMIT_JOB_TIME
            basic.PerJobUserTimeLimit = int(self.job_time_s * _TICKS_A_SECOND)
        if self.below_normal:
            flags |= JOB_OBJECT_LIMIT_PRIORITY_CLASS
            basic.PriorityClass = BELOW_NORMAL_PRIORITY_CLASS
        basic.LimitFlags = flags
        return made


def _whole_pages(size: int) -> int:
    """The system counts in pages, and says back whole ones."""
    return max(size - size % _PAGE, _PAGE)


def sandbox_limits(limits: Limits, build: int, processes: int = ACTIVE_PROCESSES) -> JobLimits:
    """For a sandboxed command: defaults where the manifest names no limit."""
    memory = limits.memory_bytes
    job_memory = JOB_MEMORY if memory is None else memory
    return JobLimits(
        processes=limits.process_bound or processes,
        process_memory=min(PROCESS_MEMORY, job_memory) if memory is None else memory,
        job_memory=job_memory,
        job_time_s=limits.cpu_s,
        below_normal=True,
        ui=ui_limits(build),
    )


def bare_limits(limits: Limits) -> JobLimits:
    """For a command without a sandbox: only what the manifest names."""
    return JobLimits(
        processes=limits.processes,
        job_memory=limits.memory_bytes,
        job_time_s=limits.cpu_s,
    )


def ui_limits(build: int) -> int:
    """Clipboard, desktop, handles of others and so on; newer builds of Windows know more."""
    found = _UI_ALL
    if build >= _IME_BUILD:
        found |= _UI_IME
    if build >= _INJECTION_BUILD:
        found |= _UI_INJECTION
    return found


def same_limits(
    found: JOBOBJECT_EXTENDED_LIMIT_INFORMATION, wanted: JOBOBJECT_EXTENDED_LIMIT_INFORMATION
) -> bool:
    """Every limit that was set, and no flag more or less (breakaway would be one)."""
    one, other = found.BasicLimitInformation, wanted.BasicLimitInformation
    if one.LimitFlags != other.LimitFlags:
        return False
    flags = other.LimitFlags
    pairs = (
        (JOB_OBJECT_LIMIT_ACTIVE_PROCESS, one.ActiveProcessLimit, other.ActiveProcessLimit),
        (JOB_OBJECT_LIMIT_PROCESS_MEMORY, found.ProcessMemoryLimit, wanted.ProcessMemoryLimit),
        (JOB_OBJECT_LIMIT_JOB_MEMORY, found.JobMemoryLimit, wanted.JobMemoryLimit),
        (JOB_OBJECT_LIMIT_JOB_TIME, one.PerJobUserTimeLimit, other.PerJobUserTimeLimit),
        (JOB_OBJECT_LIMIT_PRIORITY_CLASS, one.PriorityClass, other.PriorityClass),
    )
    return all(got == meant for flag, got, meant in pairs if flags & flag)
