"""Saying why an exec failed looks at the caller's paths, and never waits for what lies there."""

from __future__ import annotations

import errno
import fcntl
import os
import threading
from pathlib import Path

import anyio
import pytest

from sandboxd.concurrency import bounded_thread
from sandboxd.linux.init_client.exec_errors import exec_failed
from sandboxd.linux.init_client.messages import ExecStage
from sandboxd.platform.regular_file import open_regular, read_regular
from sandboxd.policy.plan import Limits
from sandboxd.types import Command
from sandboxd_proto.errors import Busy, ExecFailed, SandboxdError


def told(
    path: str, number: int = errno.ENOENT, stage: ExecStage = ExecStage.EXEC, cwd: str = "/"
) -> SandboxdError:
    command = Command(argv=(path,), env=(), cwd=cwd, limits=Limits(), syscall_policy="baseline")

    async def ask() -> SandboxdError:
        return await exec_failed(command, stage, number, path)

    return anyio.run(ask)


def test_a_script_names_its_missing_interpreter(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/no/such/interpreter -x\n")
    assert "/no/such/interpreter" in told(str(script)).message


def test_a_first_line_of_windows_is_named_with_the_conversion(tmp_path: Path) -> None:
    """The kernel looks for a file whose name ends in a carriage return."""
    (tmp_path / "the script").write_bytes(b"#! /bin/sh\r\necho hi\r\n")
    error = told("./the script", cwd=str(tmp_path))
    assert "its first line ends in a carriage return (line ends of Windows)" in error.message
    assert "\r" not in error.message
    assert error.remedy == "convert its line ends: sed -i 's/\\r$//' './the script'"


def test_what_the_start_folder_holds_is_not_to_be_allowed_once_more(tmp_path: Path) -> None:
    (tmp_path / "script").write_text("#!/usr/bin/no-such-program\n")
    error = told("./script", cwd=str(tmp_path))
    assert "its interpreter /usr/bin/no-such-program is not in the sandbox" in error.message
    assert "fs_read_allow" not in str(error.remedy)
    assert "fs_read_allow" in str(told(str(tmp_path / "script"), cwd="/usr").remedy)


def test_a_program_of_the_start_folder_without_its_folder_is_not_looked_into(
    tmp_path: Path,
) -> None:
    (tmp_path / "good.py").write_text("#!/usr/bin/python3\n")
    assert "did you mean" not in str(told("good.py", cwd=str(tmp_path)).remedy)
    (tmp_path / "good.py").chmod(0o755)
    error = told("good.py", cwd=str(tmp_path))
    assert error.message == "good.py cannot be executed: not found in PATH"
    assert error.remedy == "did you mean ./good.py?"


def test_a_folder_is_not_told_to_become_executable(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    error = told("./folder", errno.EACCES, cwd=str(tmp_path))
    assert error.message == "./folder cannot be executed: it is a folder"
    assert "chmod" not in str(error.remedy)
    (tmp_path / "file").touch()
    assert "chmod" in str(told("./file", errno.EACCES, cwd=str(tmp_path)).remedy)


def test_a_virtual_environment_is_needed_as_a_whole(tmp_path: Path) -> None:
    python = tmp_path / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    (tmp_path / "venv" / "pyvenv.cfg").write_text("")
    python.symlink_to("/usr/bin/env")
    (tmp_path / "tool").write_text(f"#!{python}\n")
    error = told("./tool", cwd=str(tmp_path))
    assert f"its interpreter {python}" in error.message
    assert error.remedy == f'allow it: "fs_read_allow": ["{tmp_path}/venv"]'
    error = told(str(python))
    assert "it, or its interpreter /lib" in error.message
    assert f'"fs_read_allow": ["{tmp_path}/venv"]' in (error.remedy or "")


@pytest.mark.parametrize("name", ["key", "bin/key"])
def test_a_first_line_makes_nothing_but_a_program_a_remedy(tmp_path: Path, name: str) -> None:
    """A command can have written the script."""
    (tmp_path / "bin").mkdir()
    (tmp_path / name).write_text("secret")
    (tmp_path / name).chmod(0o755 if name == "key" else 0o644)
    (tmp_path / "tool").write_text(f"#!{tmp_path / name}\n")
    assert "fs_read_allow" not in (told(str(tmp_path / "tool")).remedy or "")


def test_a_fifo_is_not_opened(tmp_path: Path) -> None:
    """The control: a plain open of it blocks until there is a writer."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    opened = threading.Event()

    def plainly() -> None:
        with open(fifo, "rb"):
            opened.set()

    thread = threading.Thread(target=plainly)
    thread.start()
    assert not opened.wait(0.2)
    error = told(str(fifo))
    assert isinstance(error, ExecFailed)
    assert not opened.is_set()  # our look at it was no open of its own that met the reader
    os.close(os.open(fifo, os.O_WRONLY))
    thread.join()


@pytest.mark.parametrize("path", ["/dev/null", "/dev/ptmx", "/dev/zero", "/"])
def test_only_regular_files_are_opened(path: str) -> None:
    with pytest.raises(OSError, match="not a regular file"):
        open_regular(path)


def test_a_socket_and_a_link_to_a_fifo_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to("fifo")
    for name in ("fifo", "link"):
        with pytest.raises(OSError, match="not a regular file"):
            open_regular(str(tmp_path / name))


def test_a_leased_file_is_not_waited_for(tmp_path: Path) -> None:
    """The holder of a lease may delay every open for 45 s (/proc/sys/fs/lease-break-time)."""
    leased = tmp_path / "leased"
    leased.write_text("#!/no/such\n")
    with leased.open("r+b") as held:
        fcntl.fcntl(held, fcntl.F_SETSIG, 23)  # SIGURG, which is ignored: not SIGIO, which ends us
        fcntl.fcntl(held, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        with pytest.raises(BlockingIOError):
            read_regular(str(leased), 10)
        assert isinstance(told(str(leased)), ExecFailed)


def test_a_read_is_bounded(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(b"x" * 5_000_000)
    assert len(read_regular(str(tmp_path / "large"), 3_000_000)) == 3_000_000


def test_no_more_processes_is_busy() -> None:
    error = told("/bin/true", errno.EAGAIN, ExecStage.FORK)
    assert isinstance(error, Busy)
    assert "no more processes" in error.message


@pytest.mark.parametrize("stage", [one for one in ExecStage if one is not ExecStage.EXEC])
def test_killed_before_the_exec_is_said_as_such(stage: ExecStage) -> None:
    error = told("/bin/true", errno.EINTR, stage)
    assert isinstance(error, ExecFailed)
    lost = "lost its terminal" if stage is ExecStage.PTY else "killed before it was executed"
    assert lost in error.message


def test_a_look_that_hangs_costs_the_sentence_and_not_the_daemon() -> None:
    """Threads that hang are left behind, and there are never more than a few of them."""
    release = threading.Event()

    def hang() -> str:
        release.wait()
        return "late"

    async def many() -> list[str]:
        found: list[str] = []

        async def one() -> None:
            found.append(await bounded_thread.run_within(0.05, hang, "default"))

        async with anyio.create_task_group() as tasks:
            for _ in range(3 * bounded_thread.MOST_THREADS):
                tasks.start_soon(one)
        names = [t.name for t in threading.enumerate()]
        assert names.count("bounded") == bounded_thread.MOST_THREADS
        return found

    try:
        assert set(anyio.run(many)) == {"default"}
    finally:
        release.set()
    for thread in threading.enumerate():
        if thread.name == "bounded":
            thread.join()
    assert anyio.run(bounded_thread.run_within, 5.0, lambda: "in time", "default") == "in time"


@pytest.mark.requires("root")
def test_a_program_that_only_its_owner_may_execute_names_the_owner(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o700)
    os.chown(tmp_path, 12345, 12345)
    error = told("./program", errno.EACCES, cwd=str(tmp_path))
    assert "it belongs to root, and its permission bits (700) do not let" in error.message
    assert "chmod +x" not in str(error.remedy)
    os.chown(program, 12345, 12345)
    assert "belongs to" not in told("./program", errno.EACCES, cwd=str(tmp_path)).message
