"""Make a process: suspended, with exactly the handles it needs, in its job from the start."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from ctypes import c_void_p
from dataclasses import dataclass
from typing import Any

import msgspec

from sandboxd.types import Stdio
from sandboxd.windows import api
from sandboxd.windows.job_objects.jobs import Job
from sandboxd.windows.processes.attributes import AttributeList
from sandboxd.windows.structures import (
    CREATE_NO_WINDOW,
    CREATE_SUSPENDED,
    CREATE_UNICODE_ENVIRONMENT,
    EXTENDED_STARTUPINFO_PRESENT,
    PROC_THREAD_ATTRIBUTE_HANDLE_LIST,
    PROC_THREAD_ATTRIBUTE_JOB_LIST,
    PROC_THREAD_ATTRIBUTE_PSEUDOCONSOLE,
    PROCESS_INFORMATION,
    STARTF_USESTDHANDLES,
    STARTUPINFOEXW,
)

assert sys.platform == "win32"

_FLAGS = CREATE_SUSPENDED | EXTENDED_STARTUPINFO_PRESENT | CREATE_UNICODE_ENVIRONMENT
_DESKTOP = "winsta0\\default"


class SpawnProgram(msgspec.Struct, frozen=True):
    """`line`: the whole command line; `image`: the file that is run, never searched for."""

    image: str
    line: str
    block: bytes
    cwd: str


@dataclass(slots=True)
class Suspended:
    """The caller resumes its thread or terminates it, and closes both handles."""

    process: int
    thread: int
    pid: int

    def resume(self) -> None:
        if api.ResumeThread(self.thread) == 0xFFFFFFFF:
            raise api.last_error("ResumeThread")
        self.close_thread()

    def terminate(self, code: int) -> None:
        api.TerminateProcess(self.process, code)
        self.close_thread()
        self.close()

    def close_thread(self) -> None:
        thread, self.thread = self.thread, 0
        api.close(thread)

    def close(self) -> None:
        process, self.process = self.process, 0
        api.close(process)


def spawn(
    program: SpawnProgram, stdio: Stdio, job: Job, more: Sequence[tuple[int, Any]] = ()
) -> Suspended:
    """`more`: further attributes. OSError with the system's error if it cannot be made."""
    given = (stdio.stdin, stdio.stdout, stdio.stderr)
    inherited = list(dict.fromkeys(given))
    attributes = AttributeList(2 + len(more))
    try:
        attributes.add(PROC_THREAD_ATTRIBUTE_HANDLE_LIST, (c_void_p * len(inherited))(*inherited))
        _add(attributes, job, more)
        return _create(program, attributes, given, _FLAGS | CREATE_NO_WINDOW, inherit=True)
    finally:
        attributes.close()


def spawn_in_console(
    program: SpawnProgram, console: int, job: Job, more: Sequence[tuple[int, Any]] = ()
) -> Suspended:
    """The console gives it its standard handles, and it inherits nothing."""
    attributes = AttributeList(2 + len(more))
    try:
        attributes.add_handle(PROC_THREAD_ATTRIBUTE_PSEUDOCONSOLE, console)
        _add(attributes, job, more)
        return _create(program, attributes, (api.INVALID_HANDLE,) * 3, _FLAGS, inherit=False)
    finally:
        attributes.close()


def _add(attributes: AttributeList, job: Job, more: Sequence[tuple[int, Any]]) -> None:
    attributes.add(PROC_THREAD_ATTRIBUTE_JOB_LIST, (c_void_p * 1)(job.handle))
    for attribute, value in more:
        attributes.add(attribute, value)


def _create(
    program: SpawnProgram, attributes: AttributeList, standard: Sequence[int | None], flags: int, *,
    inherit: bool,
) -> Suspended:  # fmt: skip
    desktop = ctypes.create_unicode_buffer(_DESKTOP)
    line = ctypes.create_unicode_buffer(program.line)
    block = ctypes.create_string_buffer(program.block, len(program.block))
    startup = STARTUPINFOEXW()
    info = startup.StartupInfo
    info.cb = ctypes.sizeof(startup)
    info.lpDesktop = ctypes.addressof(desktop)
    info.dwFlags = STARTF_USESTDHANDLES
    info.hStdInput, info.hStdOutput, info.hStdError = standard
    startup.lpAttributeList = attributes.address
    made = PROCESS_INFORMATION()
    api.check(
        api.CreateProcessW(
            program.image, line, None, None, int(inherit), flags, ctypes.addressof(block),
            program.cwd, ctypes.byref(startup), ctypes.byref(made),
        ),
        program.image,
    )  # fmt: skip
    return Suspended(made.hProcess, made.hThread, made.dwProcessId)
