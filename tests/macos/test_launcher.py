"""The launcher's two stages without sandbox-exec: what it says, and what the command gets."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
from pathlib import Path

import pytest

from sandboxd.macos import status
from sandboxd.macos.profile import Profile
from sandboxd.macos.spawn import arguments, spawn
from sandboxd.macos.system import LAUNCHER, MacSystem
from sandboxd.policy.plan import Limits
from sandboxd.types import Command
from sandboxd_proto.errors import ExecFailed, PathDenied


@pytest.fixture(scope="session", autouse=True)
def launcher() -> None:
    subprocess.run(["make", "-s", "-C", os.path.dirname(LAUNCHER)], check=True)


class NoCensus:
    def members(self, tag: str, uid: int) -> list[int]:
        return []


@pytest.fixture
def program(tmp_path: Path) -> str:
    """In the place of sandbox-exec: it drops its options and executes what follows them."""
    path = tmp_path / "sandbox-exec"
    path.write_text('#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done\nshift\nexec "$@"\n')
    path.chmod(0o755)
    return str(path)


class Ran:
    def __init__(self, said: status.LauncherStatus, wait_status: int, out: str, err: str) -> None:
        self.said = said
        self.code = os.waitstatus_to_exitcode(wait_status)
        self.out = out
        self.err = err


def command(*argv: str, cwd: str = "/", limits: Limits | None = None, **env: str) -> Command:
    given = {"PATH": "/usr/bin:/bin", **env}
    return Command(
        argv=argv, env=tuple(given.items()), cwd=cwd, limits=limits or Limits(),
        syscall_policy="inherit",
    )  # fmt: skip


def run(one: Command, program: str) -> Ran:
    system = MacSystem(NoCensus(), lambda pid: False, sandbox_exec=program)  # type: ignore[arg-type]
    argv = arguments(system, Profile("(version 1)", ()), one, None)
    out, out_write = os.pipe()
    err, err_write = os.pipe()
    null = os.open(os.devnull, os.O_RDWR)
    try:
        spawned = spawn(argv, null, out_write, err_write)
    finally:
        for fd in (null, out_write, err_write):
            os.close(fd)
    os.set_blocking(spawned.status, True)
    texts = []
    for fd in (spawned.status, out, err):
        with open(fd, "rb") as file:
            texts.append(file.read())
    _, wait_status = os.waitpid(spawned.pid, 0)
    return Ran(status.decode(texts[0]), wait_status, texts[1].decode(), texts[2].decode())


def test_it_says_that_the_command_started_and_the_status_is_exact(program: str) -> None:
    ran = run(command("sh", "-c", "echo out; echo err >&2; exit 7"), program)
    assert (ran.said, ran.code) == (status.LauncherStatus("", True, None), 7)
    assert (ran.out, ran.err) == ("out\n", "err\n")
    assert run(command("sh", "-c", "kill -USR1 $$"), program).code == -signal.SIGUSR1


def test_the_environment_is_exactly_what_was_given(program: str) -> None:
    ran = run(command("env", EMPTY="", ODD="a=b\nc"), program)
    assert ran.out == "PATH=/usr/bin:/bin\nEMPTY=\nODD=a=b\nc\n"


def test_no_variable_of_the_command_reaches_what_runs_outside(program: str, tmp_path: Path) -> None:
    """A loader's variable would run code outside the sandbox, in the launcher and sandbox-exec."""
    seen = tmp_path / "seen"
    Path(program).write_text(
        f'#!/bin/sh\n/usr/bin/env > {seen}\nwhile [ "$1" != -- ]; do shift; done\nshift\n'
        'exec "$@"\n'
    )
    ran = run(command("sh", "-c", 'echo "$DYLD_INSERT_LIBRARIES"', DYLD_INSERT_LIBRARIES="/x"),
              program)  # fmt: skip
    assert ran.out == "/x\n"
    assert "DYLD" not in seen.read_text()


def test_descriptors_of_the_daemon_are_not_inherited(program: str) -> None:
    leaked = os.open("/etc/passwd", os.O_RDONLY)
    os.set_inheritable(leaked, True)
    try:
        ran = run(command("sh", "-c", "ls /proc/self/fd | wc -l"), program)
    finally:
        os.close(leaked)
    assert ran.out.strip() == "4"  # three, and the folder that ls reads


def test_signals_are_as_a_fresh_program_expects(program: str) -> None:
    ran = run(command("sh", "-c", "grep -E 'SigIgn|SigBlk' /proc/self/status"), program)
    usual = (1 << 31) - 1  # without those of the C library's own
    assert [int(word, 16) & usual for word in ran.out.split()[1::2]] == [0, 0]


@pytest.mark.parametrize(
    ("argv", "number"),
    [(("no-such-program",), errno.ENOENT), (("/no/such",), errno.ENOENT), (("/etc",), errno.EACCES),
     (("/etc/passwd",), errno.EACCES), (("",), errno.ENOENT)],
)  # fmt: skip
def test_what_cannot_be_executed_is_the_exact_error(
    argv: tuple[str, ...], number: int, program: str
) -> None:
    ran = run(command(*argv), program)
    assert ran.said == status.LauncherStatus("", True, ("x", number))
    error = status.exec_error(command(*argv), "x", number)
    assert isinstance(error, ExecFailed)


def test_a_folder_that_cannot_be_entered_is_said(program: str) -> None:
    one = command("true", cwd="/no/such")
    ran = run(one, program)
    assert ran.said == status.LauncherStatus("", False, ("c", errno.ENOENT))
    assert isinstance(status.exec_error(one, "c", errno.ENOENT), PathDenied)


def test_what_sandbox_exec_prints_is_told_apart_from_the_command(program: str) -> None:
    Path(program).write_text("#!/bin/sh\necho 'sandbox-exec: <input string>:3: oh' >&2\nexit 65\n")
    ran = run(command("echo", "hi"), program)
    assert ran.said == status.LauncherStatus("sandbox-exec: <input string>:3: oh", False, None)
    assert (ran.out, ran.err) == ("", "")


def test_limits_are_set(program: str) -> None:
    limits = Limits(cpu_s=1.5, file_bytes=10240)
    ran = run(command("sh", "-c", "ulimit -t; ulimit -f; ulimit -c", limits=limits), program)
    assert ran.out.split() == ["3", "20", "0"]


def test_it_does_not_start_the_command_when_the_daemon_is_gone(
    program: str, tmp_path: Path
) -> None:
    """The pipe's other end is closed: NUL S cannot be written."""
    made = tmp_path / "made"
    go = tmp_path / "go"
    Path(program).write_text(
        f"#!/bin/sh\nwhile [ ! -e {go} ]; do sleep 0.01; done\n"
        'while [ "$1" != -- ]; do shift; done\nshift\nexec "$@"\n'
    )
    system = MacSystem(NoCensus(), lambda pid: False, sandbox_exec=program)  # type: ignore[arg-type]
    argv = arguments(system, Profile("(version 1)", ()), command("touch", str(made)), None)
    null = os.open(os.devnull, os.O_RDWR)
    spawned = spawn(argv, null, null, null)
    os.close(null)
    os.close(spawned.status)
    go.touch()
    _, wait_status = os.waitpid(spawned.pid, 0)
    assert os.waitstatus_to_exitcode(wait_status) == 127
    assert not made.exists()


def test_the_status_is_decoded_whole() -> None:
    assert status.decode(b"") == status.LauncherStatus("", False, None)
    assert status.decode(b"warning\n\0S") == status.LauncherStatus("warning", True, None)
    assert status.decode(b"\0S\0Ex\x02\0\0\0").failed == ("x", 2)
    assert status.decode(b"text\0El\x01\0\0\0") == status.LauncherStatus("text", False, ("l", 1))
    assert status.decode(b"\0S\0Ex\x02").failed is None
