"""Job objects: limits of a process tree, its end, and messages about it.

One completion port and one thread serve all jobs of the daemon. The port is not asyncio's, which
closes keys that it does not know.
"""

from __future__ import annotations

import ctypes
import itertools
import sys
import threading
from collections.abc import Callable
from ctypes import c_size_t, c_uint32, c_void_p

from sandboxd import event_loop
from sandboxd.windows import api
from sandboxd.windows.job_objects.job_limits import JobLimits, same_limits
from sandboxd.windows.structures import (
    JOBOBJECT_ASSOCIATE_COMPLETION_PORT,
    JOBOBJECT_BASIC_PROCESS_ID_LIST,
    JOBOBJECT_BASIC_UI_RESTRICTIONS,
    JOBOBJECT_EXTENDED_LIMIT_INFORMATION,
    JobObjectAssociateCompletionPortInformation,
    JobObjectBasicProcessIdList,
    JobObjectBasicUIRestrictions,
    JobObjectExtendedLimitInformation,
)

assert sys.platform == "win32"

Told = Callable[[int], None]


class Job:
    """Closing it ends every process in it."""

    def __init__(self, limits: JobLimits) -> None:
        self.limits = limits
        self.handle = api.check_handle(api.CreateJobObjectW(None, None), "CreateJobObject")
        try:
            wanted = limits.structure()
            self._set(JobObjectExtendedLimitInformation, wanted, "the limits of a job")
            if limits.ui:
                restrictions = JOBOBJECT_BASIC_UI_RESTRICTIONS(limits.ui)
                self._set(JobObjectBasicUIRestrictions, restrictions, "the UI limits of a job")
        except OSError:
            self.close()
            raise

    def _set(self, kind: int, value: ctypes.Structure, what: str) -> None:
        api.check(
            api.SetInformationJobObject(
                self.handle, kind, ctypes.byref(value), ctypes.sizeof(value)
            ),
            what,
        )

    def holds_limits(self) -> bool:
        """Whether the system says back exactly the limits that were set."""
        found = JOBOBJECT_EXTENDED_LIMIT_INFORMATION()
        if not self._query(JobObjectExtendedLimitInformation, found):
            return False
        return same_limits(found, self.limits.structure())

    def holds_ui_limits(self) -> bool:
        found = JOBOBJECT_BASIC_UI_RESTRICTIONS()
        return (
            self._query(JobObjectBasicUIRestrictions, found)
            and found.UIRestrictionsClass == self.limits.ui
        )

    def _query(self, kind: int, value: ctypes.Structure) -> bool:
        return bool(
            api.QueryInformationJobObject(
                self.handle, kind, ctypes.byref(value), ctypes.sizeof(value), None
            )
        )

    def peak_memory(self) -> int:
        """The most that the job's processes had committed together; 0 where it is not said."""
        found = JOBOBJECT_EXTENDED_LIMIT_INFORMATION()
        known = self._query(JobObjectExtendedLimitInformation, found)
        return int(found.PeakJobMemoryUsed) if known else 0

    def is_empty(self) -> bool:
        """Whether no process is left; False where the system does not say it."""
        found = JOBOBJECT_BASIC_PROCESS_ID_LIST()
        known = self._query(JobObjectBasicProcessIdList, found)
        return known and found.NumberOfAssignedProcesses == 0

    def holds_process(self, process: int) -> bool | None:
        """None where the system does not say it."""
        inside = c_uint32()
        found = api.IsProcessInJob(process, self.handle, ctypes.byref(inside))
        return bool(inside.value) if found else None

    def terminate(self, code: int) -> None:
        if self.handle:
            api.TerminateJobObject(self.handle, code)

    def close(self) -> None:
        handle, self.handle = self.handle, 0
        api.close(handle)


class JobPort:
    """Tells of what happens in jobs, on the event loop's thread."""

    def __init__(self) -> None:
        self._loop = event_loop.running_loop()
        self._told: dict[int, Told] = {}
        self._keys = itertools.count(1)
        self._port = api.check_handle(
            api.CreateIoCompletionPort(api.INVALID_HANDLE, None, None, 1), "a completion port"
        )
        self._thread = threading.Thread(target=self._run, name="jobs", daemon=True)
        self._thread.start()

    def watch(self, job: Job, told: Told) -> int:
        key = next(self._keys)
        place = JOBOBJECT_ASSOCIATE_COMPLETION_PORT(key, self._port)
        api.check(
            api.SetInformationJobObject(
                job.handle, JobObjectAssociateCompletionPortInformation,
                ctypes.byref(place), ctypes.sizeof(place),
            ),
            "the completion port of a job",
        )  # fmt: skip
        self._told[key] = told  # before any message of it is delivered by the loop
        return key

    def forget(self, key: int) -> None:
        self._told.pop(key, None)

    def _run(self) -> None:
        message, key, pid = c_uint32(), c_size_t(), c_void_p()
        while True:
            got = api.GetQueuedCompletionStatus(
                self._port, ctypes.byref(message), ctypes.byref(key), ctypes.byref(pid),
                api.INFINITE,
            )  # fmt: skip
            if not got:
                continue
            if key.value == 0:
                return
            try:
                self._loop.call_soon_threadsafe(self._tell, key.value, message.value)
            except RuntimeError:  # the loop is closed: the daemon ends
                return

    def _tell(self, key: int, message: int) -> None:
        told = self._told.get(key)
        if told is not None:
            told(message)

    def close(self) -> None:
        api.PostQueuedCompletionStatus(self._port, 0, None, None)
        self._thread.join(5)
        api.close(self._port)
