"""Make a process: suspended, with exactly the handles it needs, in its job from the start."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from ctypes import c_void_p
from dataclasses import dataclass
from typing import Any

from sandboxd.types import Stdio
from sandboxd.windows import api
from sandboxd.windows.attributes import AttributeList
from sandboxd.windows.jobs import Job
from sandboxd.windows.structures import (
    CREATE_NO_WINDOW,
    CREATE_SUSPENDED,
    CREATE_UNICODE_ENVIRONMENT,
    EXTENDED_STARTUPINFO_PRESENT,
    PROC_THREAD_ATTRIBUTE_HANDLE_LIST,
    PROC_THREAD_ATTRIBUTE_JOB_LIST,
    PROCESS_INFORMATION,
    STARTF_USESTDHANDLES,
    STARTUPINFOEXW,
)

assert sys.platform == "win32"

_FLAGS = (
    CREATE_SUSPENDED | EXTENDED_STARTUPINFO_PRESENT | CREATE_UNICODE_ENVIRONMENT | CREATE_NO_WINDOW
)
_DESKTOP = "winsta0\\default"


@dataclass(frozen=True, slots=True)
class SpawnProgram:
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
    handles = list(dict.fromkeys((stdio.stdin, stdio.stdout, stdio.stderr)))
    attributes = AttributeList(2 + len(more))
    try:
        attributes.add(PROC_THREAD_ATTRIBUTE_HANDLE_LIST, (c_void_p * len(handles))(*handles))
        attributes.add(PROC_THREAD_ATTRIBUTE_JOB_LIST, (c_void_p * 1)(job.handle))
        for attribute, value in more:
            attributes.add(attribute, value)
        return _create(program, stdio, attributes)
    finally:
        attributes.close()


def _create(program: SpawnProgram, stdio: Stdio, attributes: AttributeList) -> Suspended:
    desktop = ctypes.create_unicode_buffer(_DESKTOP)
    line = ctypes.create_unicode_buffer(program.line)
    block = ctypes.create_string_buffer(program.block, len(program.block))
    startup = STARTUPINFOEXW()
    startup.StartupInfo.cb = ctypes.sizeof(startup)
    startup.StartupInfo.lpDesktop = ctypes.addressof(desktop)
    startup.StartupInfo.dwFlags = STARTF_USESTDHANDLES
    startup.StartupInfo.hStdInput = stdio.stdin
    startup.StartupInfo.hStdOutput = stdio.stdout
    startup.StartupInfo.hStdError = stdio.stderr
    startup.lpAttributeList = attributes.address
    made = PROCESS_INFORMATION()
    api.check(
        api.CreateProcessW(
            program.image, line, None, None, 1, _FLAGS, ctypes.addressof(block), program.cwd,
            ctypes.byref(startup), ctypes.byref(made),
        ),
        program.image,
    )  # fmt: skip
    return Suspended(made.hProcess, made.hThread, made.dwProcessId)
