"""The jobs of commands that run now: a process in one of them is a command of this daemon."""

from __future__ import annotations

import sys

from sandboxd.windows.job_objects.jobs import Job

assert sys.platform == "win32"

_running: set[Job] = set()


def add(job: Job) -> None:
    _running.add(job)


def remove(job: Job) -> None:
    _running.discard(job)


def jobs() -> frozenset[Job]:
    return frozenset(_running)


def in_running_job(process: int) -> bool | None:
    """None where the system does not say it of one of them, and no other one has the process."""
    found = [job.holds_process(process) for job in _running]
    return True if True in found else None if None in found else False
