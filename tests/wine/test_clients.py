"""`sandboxctl` and both Python clients on a Windows Python."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import anyio
from wine.conftest import Ctl, WindowsDaemon

from sandboxd_client import AsyncClient, transport

LIMIT_S = 100


def process(
    *arguments: str, pipe: str, stdin: bytes | None = None, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "sandboxd_client.cli", *arguments],
        env={**os.environ, "SANDBOXD_SOCKET": pipe, **(env or {})}, capture_output=True,
        timeout=LIMIT_S, **({"input": stdin} if stdin is not None else {"stdin": -3}),
    )  # fmt: skip


def test_run_behaves_like_the_command(unsandboxed: WindowsDaemon, tmp_path: Path) -> None:
    program = (
        "import sys; d = sys.stdin.read(); sys.stdout.write(d[::-1]); sys.stderr.write('e'); "
        "sys.exit(5)"
    )
    path = f"PATH={os.environ['PATH']}"
    ended = process(
        "run", "--env", path, "--", sys.executable, "-c", program, pipe=unsandboxed.pipe,
        stdin=b"abc",
    )  # fmt: skip
    assert ended.returncode == 5, ended.stderr
    assert ended.stdout == b"cba"
    assert b"e" in ended.stderr


def test_run_json_has_the_result(unsandboxed: WindowsDaemon) -> None:
    ended = process(
        "run", "--json", "--", sys.executable, "-c", "print('hi')", pipe=unsandboxed.pipe
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["stdout"]["data"].strip() == "hi"


def test_a_detached_command_is_left_running_and_read(unsandboxed: WindowsDaemon) -> None:
    program = "print('left'); raise SystemExit(3)"
    made = process(
        "run", "--detach", "--name", "job", "--", sys.executable, "-c", program,
        pipe=unsandboxed.pipe,
    )  # fmt: skip
    assert (made.stdout.strip(), made.returncode) == (b"job", 0), made.stderr
    read = process("logs", "--follow", "job", pipe=unsandboxed.pipe)
    assert (read.stdout.strip(), read.returncode) == (b"left", 3), read.stderr
    refused = process("run", "--ask", "--", sys.executable, pipe=unsandboxed.pipe)
    assert refused.returncode == 125
    assert b"leave --ask out" in refused.stderr


def test_status_ps_and_doctor_answer(unsandboxed: WindowsDaemon, ctl: Ctl) -> None:
    assert "none" in ctl(unsandboxed, "status").stdout
    assert ctl(unsandboxed, "ps").returncode == 0
    assert "backend none" in ctl(unsandboxed, "doctor").stdout


def test_check_names_the_backend(unsandboxed: WindowsDaemon, ctl: Ctl, tmp_path: Path) -> None:
    told = ctl(unsandboxed, "check", "--workspace", str(tmp_path))
    assert "none" in told.stdout, (told.stdout, told.stderr)


def test_kill_names_what_it_did_not_find(unsandboxed: WindowsDaemon, ctl: Ctl) -> None:
    ended = ctl(unsandboxed, "kill", "no-such-execution")
    assert ended.returncode == 125
    assert "there is no execution" in ended.stderr


def test_a_daemon_is_started_when_there_is_none(tmp_path: Path) -> None:
    pipe = rf"\\.\pipe\sandboxd-started-{os.getpid()}"
    own = {"LOCALAPPDATA": str(tmp_path), "APPDATA": str(tmp_path)}
    running = [
        subprocess.Popen(
            [sys.executable, "-m", "sandboxd_client.cli", "socket", "--start"],
            env={**os.environ, "SANDBOXD_SOCKET": pipe, **own}, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for _ in range(3)
    ]  # fmt: skip
    answers = [process.communicate(timeout=LIMIT_S) for process in running]
    assert [process.returncode for process in running] == [0, 0, 0], answers
    status = process("status", "--json", pipe=pipe, env=own)
    assert json.loads(status.stdout)["clients"] == 1, "the three have one daemon"
    assert process("shutdown", pipe=pipe, env=own).returncode == 0


def test_the_asynchronous_client(unsandboxed: WindowsDaemon) -> None:
    async def work() -> None:
        async with AsyncClient(unsandboxed.pipe) as client:
            assert (await client.initialize()).server.name == "sandboxd"
            argv = [sys.executable, "-c", "print('async')"]
            result = await client.execute(argv, manifest={"env": unsandboxed.env})
            assert result.stdout.data.strip() == "async"

    anyio.run(work)


def test_the_client_checks_who_owns_the_pipe(unsandboxed: WindowsDaemon) -> None:
    from sandboxd_client.pipe import open_pipe, own_sid, owner_of

    pipe = open_pipe(unsandboxed.pipe)
    try:
        assert owner_of(pipe) == own_sid()
    finally:
        pipe.close()
    transport.connect(unsandboxed.pipe).close()
