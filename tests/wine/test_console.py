"""Pseudo consoles of the system, as far as it has them: made, ended, and nothing is left open.

Wine's console prints nothing and is not resized. That a terminal works is not shown here.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from ctypes import c_uint32
from pathlib import Path

import anyio
import pytest

from sandboxd.backends.unsandboxed.windows import JobsOnly
from sandboxd.backends.windows_context import WindowsSupport
from sandboxd.platform.windows.loop import new_event_loop
from sandboxd.platform.windows.paths import internal
from sandboxd.policy.plan import Limits
from sandboxd.types import Command, PtyRequest
from sandboxd.windows import api, ends
from sandboxd.windows.job_objects import running_jobs
from sandboxd.windows.job_objects.jobs import JobPort
from sandboxd.windows.processes import system_launch
from sandboxd.windows.processes.exits import KILLED
from sandboxd_proto.errors import ExecFailed, PolicyNotSupported

LIMIT_S = 60


def command(program: str, env: tuple[tuple[str, str], ...]) -> Command:
    return Command(
        argv=(sys.executable, "-c", program), env=env, cwd=internal("C:\\"), limits=Limits(),
        syscall_policy="inherit", pty=PtyRequest(24, 80),
    )  # fmt: skip


def run(folder: Path, work: Callable[[WindowsSupport], Awaitable[None]]) -> None:
    async def with_port() -> None:
        support = WindowsSupport(str(folder), terminals=True)
        support.port = JobPort()
        try:
            await work(support)
        finally:
            support.port.close()

    anyio.run(with_port, backend_options={"loop_factory": new_event_loop})


def nothing_is_left() -> None:
    assert ends.terminals == {}
    assert not running_jobs.jobs()


def handles() -> int:
    count = c_uint32()
    kernel32 = ctypes.WinDLL("kernel32")
    assert kernel32.GetProcessHandleCount(ctypes.c_void_p(-1), ctypes.byref(count))
    return count.value


def test_a_command_runs_in_a_console_and_its_end_ends_the_console(
    tmp_path: Path, child_env: tuple[tuple[str, str], ...]
) -> None:
    async def work(support: WindowsSupport) -> None:
        sandbox = JobsOnly(support, str(tmp_path))
        program = f"open({str(tmp_path / 'ran')!r}, 'w'); raise SystemExit(7)"
        process = await sandbox.spawn(command(program, child_env), None)
        assert process.pty is not None
        output = ends.ReadEnd(process.pty)
        try:
            with anyio.fail_after(LIMIT_S):
                assert (await process.wait()).exit_code == 7
                # Its output ends although nobody closed it: the console was closed meanwhile.
                while output.read_now() != b"":
                    await output.readable()
        finally:
            process.close()
        nothing_is_left()

    run(tmp_path, work)
    assert (tmp_path / "ran").exists()


def test_a_command_in_a_console_is_killed_with_its_tree(
    tmp_path: Path, child_env: tuple[tuple[str, str], ...]
) -> None:
    async def work(support: WindowsSupport) -> None:
        process = await JobsOnly(support, str(tmp_path)).spawn(
            command("import time; time.sleep(300)", child_env), None
        )
        process.kill()
        with anyio.fail_after(LIMIT_S):
            assert (await process.wait()).exit_code == KILLED
        process.close()

    run(tmp_path, work)


def test_it_takes_input_and_a_size_is_taken_or_refused_by_name(
    tmp_path: Path, child_env: tuple[tuple[str, str], ...]
) -> None:
    async def work(support: WindowsSupport) -> None:
        process = await JobsOnly(support, str(tmp_path)).spawn(
            command("import time; time.sleep(300)", child_env), None
        )
        assert process.pty is not None
        writer = ends.WriteEnd(ends.terminal_input(process.pty))
        assert writer.write_now(b"typed") == 5
        writer.close()
        with suppress(PolicyNotSupported):  # Wine does not resize
            ends.resize_terminal(process.pty, 30, 100)
        with pytest.raises(PolicyNotSupported, match="at most"):
            ends.resize_terminal(process.pty, 40000, 100)
        process.close()

    run(tmp_path, work)


@pytest.mark.parametrize("step", ["spawn_in_console", "watch", "resume"])
def test_what_fails_leaves_no_process_and_no_handle(
    tmp_path: Path, child_env: tuple[tuple[str, str], ...], monkeypatch: pytest.MonkeyPatch,
    step: str,
) -> None:  # fmt: skip
    def fail(*words: object) -> int:
        raise OSError(5, "refused", step, 5)

    async def work(support: WindowsSupport) -> None:
        sandbox = JobsOnly(support, str(tmp_path))
        program = f"open({str(tmp_path / 'ran')!r}, 'w')"
        if step == "spawn_in_console":
            monkeypatch.setattr(system_launch, step, fail)
        elif step == "watch":
            monkeypatch.setattr(JobPort, "watch", fail)
        else:
            monkeypatch.setattr(api, "ResumeThread", lambda thread: 0xFFFFFFFF)
        counts = []
        for _ in range(4):
            with pytest.raises((OSError, ExecFailed)):
                await sandbox.spawn(command(program, child_env), None)
            await anyio.sleep(0.5)  # the console is closed in a thread
            counts.append(handles())
        assert counts[-1] <= counts[0] + 2, counts
        nothing_is_left()

    run(tmp_path, work)
    assert not (tmp_path / "ran").exists()
