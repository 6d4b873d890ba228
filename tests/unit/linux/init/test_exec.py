"""What a command is given and what is reported of it: nothing more, nothing less, and exactly."""

from __future__ import annotations

import errno
import os
import resource
import signal
from pathlib import Path
from typing import Any

import pytest
from init_driver import Init

from sandboxd.linux.init_client import messages as wire


def test_true_is_started_then_exited_then_gone(init: Init) -> None:
    ended = init.exec("true").wait()
    assert ended.kinds == ["StartedMessage", "ExitedMessage", "Gone"]
    assert (ended.code, ended.signal) == (0, None)


@pytest.mark.parametrize("code", [1, 127, 128 + signal.SIGSYS, 255])
def test_an_exit_code_is_reported_as_a_code(plain_init: Init, code: int) -> None:
    ended = plain_init.shell(f"exit {code}").wait()
    assert (ended.code, ended.signal) == (code, None)


@pytest.mark.parametrize("name", ["SYS", "KILL", "TERM", "SEGV", "RTMAX"])
def test_a_signal_is_reported_as_a_signal(plain_init: Init, name: str) -> None:
    ended = plain_init.shell(f"ulimit -c 0; kill -{name} $$").wait()
    number = signal.SIGRTMAX if name == "RTMAX" else signal.Signals[f"SIG{name}"]
    assert (ended.code, ended.signal) == (None, number)


def test_standard_streams_are_those_that_were_passed(init: Init) -> None:
    command = init.shell("cat; echo problem >&2")
    os.write(command.stdin, b"to the command\n")
    ended = command.wait()
    assert ended.stdout == b"to the command\n"
    assert ended.stderr == b"problem\n"


def test_the_environment_is_exactly_the_given_one(init: Init) -> None:
    given = [("A", "1"), ("EMPTY", ""), ("ODD", "x=y\nz"), ("BYTES", "\udcff")]
    ended = init.exec("/usr/bin/env", "-0", env=given).wait()
    assert ended.stdout == b"A=1\0EMPTY=\0ODD=x=y\nz\0BYTES=\xff\0"


def test_no_environment_means_none(plain_init: Init) -> None:
    assert plain_init.exec("env", env=[]).wait().stdout == b""


def test_only_the_standard_descriptors_reach_the_command(init: Init) -> None:
    ended = init.exec("/bin/ls", "/proc/self/fd").wait()
    # 3 is the folder that ls itself has opened.
    assert ended.stdout.split() == [b"0", b"1", b"2", b"3"]


def test_the_working_folder_is_the_given_one(init: Init) -> None:
    assert init.exec("pwd", cwd="/usr/bin").wait().stdout == b"/usr/bin\n"


def test_umask_signals_and_session_are_fresh(init: Init) -> None:
    script = """
import os, signal
umask = os.umask(0)
status = dict(l.split(":", 1) for l in open("/proc/self/status").read().splitlines() if ":" in l)
print(oct(umask), status["SigBlk"].strip(), status["NoNewPrivs"].strip())
print(os.getsid(0) == os.getpid() == os.getpgrp(), signal.getsignal(signal.SIGCHLD).name)
"""
    ended = init.python(script).wait()
    assert ended.stdout.split() == [b"0o22", b"0" * 16, b"1", b"True", b"SIG_DFL"], ended.stderr


def test_ignored_signals_of_the_daemon_are_not_inherited(plain_init: Init) -> None:
    """Python ignores SIGPIPE and SIGXFSZ, so the init was started with them ignored."""
    ended = plain_init.exec("grep", "SigIgn", "/proc/self/status").wait()
    assert ended.stdout.split() == [b"SigIgn:", b"0" * 16]


def test_a_mebibyte_of_arguments_arrives(init: Init) -> None:
    arguments = [f"{i:08}" + "x" * 1016 for i in range(1024)]
    script = "import sys; print(len(sys.argv[1:]), sum(map(len, sys.argv[1:])), sys.argv[-1][:8])"
    ended = init.exec("/usr/bin/python3", "-I", "-c", script, *arguments).wait()
    assert ended.stdout.split() == [b"1024", b"1048576", b"00001023"], ended.messages


def test_rlimits_are_set_soft_and_hard(init: Init) -> None:
    limits = [
        wire.Rlimit(resource=resource.RLIMIT_NOFILE, soft=64, hard=128),
        wire.Rlimit(resource=resource.RLIMIT_CORE, soft=0, hard=0),
        wire.Rlimit(resource=resource.RLIMIT_FSIZE, soft=4096, hard=2**64 - 1),
    ]
    script = (
        "import resource as r;"
        "print([r.getrlimit(x) for x in (r.RLIMIT_NOFILE, r.RLIMIT_CORE, r.RLIMIT_FSIZE)])"
    )
    ended = init.python(script, rlimits=limits).wait()
    assert ended.stdout == b"[(64, 128), (0, 0), (4096, -1)]\n"


def test_rusage_is_that_of_the_command(plain_init: Init) -> None:
    script = """
import os, time
data = bytearray(64 << 20)
while time.process_time() < 0.2: pass
if os.fork() == 0:
    while time.process_time() < 0.1: pass
    os._exit(0)
os.wait()
"""
    ended = plain_init.python(script).wait()
    usage = ended.only(wire.ExitedMessage).usage
    assert 0.3e6 <= usage.user_us + usage.system_us < 20e6
    assert 64 << 20 <= usage.maxrss_bytes < 1 << 30
    tree = ended.only(wire.Gone).usage
    assert tree.user_us + tree.system_us >= usage.user_us + usage.system_us


def test_commands_run_side_by_side(init: Init) -> None:
    waiting = [init.shell(f"read line; exit {code}") for code in range(8)]
    for command in waiting:
        command.started()
    assert init.shell("exit 42").wait().code == 42
    for code, command in reversed(list(enumerate(waiting))):
        assert command.wait().code == code


def failure(init: Init, *argv: str, **fields: Any) -> wire.ExecFailedMessage:
    ended = init.exec(*argv, **fields).wait()
    assert ended.kinds == ["ExecFailedMessage"]
    failed: wire.ExecFailedMessage = ended.only(wire.ExecFailedMessage)
    return failed


def test_a_missing_program_is_named(init: Init) -> None:
    assert failure(init, "no-such-program") == wire.ExecFailedMessage(
        wire.ExecStage.EXEC, errno.ENOENT, "no-such-program"
    )
    assert failure(init, "/no/such") == wire.ExecFailedMessage(
        wire.ExecStage.EXEC, errno.ENOENT, "/no/such"
    )
    assert failure(init, "") == wire.ExecFailedMessage(wire.ExecStage.EXEC, errno.ENOENT, "")
    assert init.exec("true").wait().code == 0


def test_a_missing_folder_is_named(init: Init) -> None:
    assert failure(init, "true", cwd="/no/such/folder") == wire.ExecFailedMessage(
        wire.ExecStage.CHDIR, errno.ENOENT, "/no/such/folder"
    )


def test_an_impossible_rlimit_is_reported(plain_init: Init) -> None:
    backwards = wire.Rlimit(resource=resource.RLIMIT_NOFILE, soft=2, hard=1)
    failed = failure(plain_init, "true", rlimits=[backwards])
    assert failed == wire.ExecFailedMessage(wire.ExecStage.RLIMIT, errno.EINVAL, "07")


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path, Path]:
    """One whose `tool` may not be executed, one whose `tool` says b, one that is not a folder."""
    denied, allowed, file = tmp_path / "a", tmp_path / "b", tmp_path / "c"
    for folder in (denied, allowed):
        folder.mkdir()
        (folder / "tool").write_text(f"#!/bin/sh\necho {folder.name}\n")
    (allowed / "tool").chmod(0o755)
    file.touch()
    return denied, allowed, file


def test_path_is_searched_in_the_commands_environment(
    plain_init: Init, folders: tuple[Path, Path, Path]
) -> None:
    denied, allowed, file = folders
    path = f"/no/such:{file}:{denied}:{allowed}"
    assert plain_init.exec("tool", env=[("PATH", path)]).wait().stdout == b"b\n"


def test_permission_denied_outlasts_later_misses(
    plain_init: Init, folders: tuple[Path, Path, Path]
) -> None:
    denied, _, file = folders
    failed = failure(plain_init, "tool", env=[("PATH", f"{denied}:/no/such:{file}")])
    assert failed == wire.ExecFailedMessage(wire.ExecStage.EXEC, errno.EACCES, f"{denied}/tool")


@pytest.mark.parametrize("path", ["b", "", ":/no/such", "/no/such:./b"])
def test_relative_entries_of_path_start_at_the_working_folder(
    plain_init: Init, folders: tuple[Path, Path, Path], path: str
) -> None:
    cwd = folders[1] if path in ("", ":/no/such") else folders[1].parent
    assert plain_init.exec("tool", cwd=str(cwd), env=[("PATH", path)]).wait().stdout == b"b\n"


def test_a_name_with_a_slash_is_not_searched(
    plain_init: Init, folders: tuple[Path, Path, Path]
) -> None:
    parent = folders[1].parent
    assert plain_init.exec("b/tool", cwd=str(parent)).wait().stdout == b"b\n"
    failed = failure(plain_init, "./tool", env=[("PATH", str(folders[1]))])
    assert (failed.stage, failed.errno) == (wire.ExecStage.EXEC, errno.ENOENT)


def test_a_file_without_an_interpreter_is_not_given_to_a_shell(
    plain_init: Init, tmp_path: Path
) -> None:
    script = tmp_path / "script"
    script.write_text("echo ran\n")
    script.chmod(0o755)
    assert failure(plain_init, str(script)).errno == errno.ENOEXEC
