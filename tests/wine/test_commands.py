"""`sandboxctl` on a Windows Python: what works, and what is refused by its name."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from wine.conftest import Ctl, Ended, WindowsDaemon

LIMIT_S = 100
FOREVER = "import time; print('up', flush=True); time.sleep(300)"
CTL = [sys.executable, "-m", "sandboxd_client.cli"]


def process(daemon: WindowsDaemon, *words: str) -> Ended:
    """`sandboxctl` as its user starts it."""
    return subprocess.run(
        [*CTL, *words], env=daemon.client_env, stdin=subprocess.DEVNULL, capture_output=True,
        timeout=LIMIT_S, encoding="utf-8",
    )  # fmt: skip


@contextmanager
def running(daemon: WindowsDaemon, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """`sandboxctl` in the background, once its command has printed its first line."""
    process = subprocess.Popen(
        [*CTL, *words], env=daemon.client_env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == b"up"
        yield process
    finally:
        process.kill()
        process.communicate(timeout=20)


def test_kill_ends_what_another_connection_runs(unsandboxed: WindowsDaemon, ctl: Ctl) -> None:
    with running(unsandboxed, "run", "--", sys.executable, "-c", FOREVER) as process:
        listed = json.loads(ctl(unsandboxed, "ps", "--json").stdout)["executions"]
        (found,) = [one for one in listed if FOREVER in one["argv"]]
        ended = ctl(unsandboxed, "kill", found["execution_id"])
        assert ended.returncode == 0, ended.stderr
        assert process.wait(60) == 130


def test_a_detached_command_is_followed_signalled_and_remembered(
    unsandboxed: WindowsDaemon, ctl: Ctl
) -> None:
    started = ctl(
        unsandboxed, "run", "--detach", "--name", "back", "--", sys.executable, "-c", FOREVER
    )
    assert (started.returncode, started.stdout) == (0, "back\n"), started.stderr
    with running(unsandboxed, "attach", "back") as attached:
        refused = ctl(unsandboxed, "kill", "--signal", "HUP", "back")
        assert refused.returncode != 0
        assert "INT, TERM, BREAK and KILL" in refused.stderr
        assert ctl(unsandboxed, "kill", "--signal", "KILL", "back").returncode == 0
        assert attached.wait(60) == 0x40010004
    logs = ctl(unsandboxed, "logs", "back")
    assert logs.stdout.strip() == "up"
    assert "exit code 1073807364" in logs.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["audit", "--verify"], "unbroken"),
        (["audit", "--type", "execution.*"], ""),
        (["sessions"], ""),
        (["grants"], ""),
        (["budget"], ""),
        (["top", "--once"], ""),
        (["approve", "--list"], ""),
        (["plan", "off"], ""),
    ],
)
def test_what_an_approver_does(
    unsandboxed: WindowsDaemon, ctl: Ctl, words: list[str], said: str
) -> None:
    done = ctl(unsandboxed, *words)
    assert done.returncode == 0, done.stderr
    assert said in done.stdout


def test_an_approval_is_decided_from_elsewhere(
    unsandboxed: WindowsDaemon, ctl: Ctl, tmp_path: Path
) -> None:
    made = tmp_path / "made"
    words = ["run", "--mode", "default", "--workspace", str(tmp_path), "--", sys.executable, "-c"]
    process = subprocess.Popen(
        [*CTL, *words, f"open({str(made)!r}, 'w')"], env=unsandboxed.client_env,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        deadline = time.monotonic() + 60
        listed = ""
        while not listed and time.monotonic() < deadline:
            listed = ctl(unsandboxed, "approve", "--list").stdout
        assert not made.exists()
        decided = ctl(unsandboxed, "approve", listed.split()[0], "--once")
        assert "allowed" in decided.stdout, decided.stderr
        said = process.communicate(timeout=60)[0]
        assert process.returncode == 0, said
        assert b"sandboxctl approve ap-" in said
        assert made.exists()
    finally:
        process.kill()
        process.wait(20)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["shell"], "needs a terminal"),
        (["explain", "--", "cmd"], "does not record refused accesses"),
        (["approve"], "reads single keys of a console, and stdin is none"),
        (["run", "--pty", "--", "cmd"], "terminals are not supported on Windows"),
        (["run", "--ask", "--", "cmd"], "not supported on Windows"),
        (["sandbox", "forward", "x", "80"], "connect into an AppContainer"),
        (["image", "build"], "Linux"),
    ],
)
def test_what_does_not_work_is_refused_by_name(
    unsandboxed: WindowsDaemon, ctl: Ctl, words: list[str], reason: str
) -> None:
    refused = ctl(unsandboxed, *words)
    assert refused.returncode in (2, 125), refused
    assert reason in refused.stderr


def test_kept_lists_shows_and_puts_back_what_was_moved_aside(
    unsandboxed: WindowsDaemon, ctl: Ctl, tmp_path: Path
) -> None:
    program = "import os; os.mkdir('.vscode'); open('.vscode/tasks.json', 'w').write('made')"
    where = ["--workspace", str(tmp_path)]
    ran = ctl(
        unsandboxed, "run", *where, "--cwd", str(tmp_path), "--", sys.executable, "-c", program
    )
    assert ran.returncode == 0, ran
    assert not (tmp_path / ".vscode" / "tasks.json").exists()
    (found,) = json.loads(ctl(unsandboxed, "kept", "list", "--json", *where).stdout)["kept"]
    assert found["origin"].startswith(".vscode")
    assert "+made" in ctl(unsandboxed, "kept", "diff", *where, found["id"]).stdout
    back = ctl(unsandboxed, "kept", "accept", *where, found["id"])
    assert back.returncode == 0, back.stderr
    assert (tmp_path / ".vscode" / "tasks.json").read_text() == "made"
    assert json.loads(ctl(unsandboxed, "kept", "list", "--json", *where).stdout)["kept"] == []


def test_an_ntstatus_is_the_exit_code(unsandboxed: WindowsDaemon) -> None:
    program = "import ctypes; ctypes.windll.kernel32.ExitProcess(0xC0000005)"
    ended = process(unsandboxed, "run", "--", sys.executable, "-c", program)
    assert ended.returncode & 0xFFFFFFFF == 0xC0000005, ended.stderr


# The signal that Windows' console sends, raised where the console would: Wine has no console here.
_CONTROL_C = """
import os, signal, sys, threading, time
from sandboxd_client.cli import main

def press():
    while not os.path.exists(sys.argv[1]):
        time.sleep(0.05)
    signal.raise_signal(signal.SIGINT)

threading.Thread(target=press, daemon=True).start()
sys.exit(main(sys.argv[2:]))
"""


def test_control_c_ends_the_command_and_the_result_still_comes(
    unsandboxed: WindowsDaemon, tmp_path: Path
) -> None:
    note = tmp_path / "beats"
    program = (
        "import sys, time\n"
        "while True:\n"
        "    open(sys.argv[1], 'a').write('.'); print('x' * 100, flush=True); time.sleep(0.01)\n"
    )
    words = ["run", "--", sys.executable, "-c", program, str(note)]
    ended = subprocess.run(
        [sys.executable, "-c", _CONTROL_C, str(note), *words], env=unsandboxed.client_env,
        stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT_S,
    )  # fmt: skip
    assert ended.returncode == 130, ended.stderr
    assert set(ended.stdout) <= set(b"x\r\n")
    size = note.stat().st_size
    assert size > 0
    time.sleep(1.0)
    assert note.stat().st_size == size
