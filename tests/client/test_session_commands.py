"""`sandboxctl` for sessions and approvals: what it prints, and that only a key decides."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from support.daemon import Daemon, running_daemon
from support.rpc import PATIENCE_S, Connection
from support.sessions import answer_error, connect_approver, open_session, pending

pytestmark = pytest.mark.requires("bubblewrap")
CTL = [sys.executable, "-m", "sandboxd_client.cli"]


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    with running_daemon() as daemon:
        yield daemon


@pytest.fixture
def worker(daemon: Daemon) -> Iterator[Connection]:
    with daemon.connect() as connection:
        open_session(connection, title="fix the login")
        yield connection


def _env(daemon: Daemon) -> dict[str, str]:
    return {**os.environ, "SANDBOXD_SOCKET": daemon.socket, "TERM": "dumb"}


def ctl(daemon: Daemon, *words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*CTL, *words], env=_env(daemon), capture_output=True, text=True, timeout=60, check=False,
        cwd=cwd,
    )  # fmt: skip


def _touch(tmp_path: Path) -> dict[str, object]:
    preset = {"preset": "workspace-write", "workspace": str(tmp_path)}
    return {"argv": ["touch", "made"], **preset}


class Terminal:
    """A command of ours on a terminal."""

    def __init__(self, master: int, process: subprocess.Popen[bytes]) -> None:
        self.master, self.process, self.shown = master, process, ""

    def wait_for(self, text: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while text not in self.shown:
            left = deadline - time.monotonic()
            assert left > 0, f"{text!r} was not shown: {self.shown}"
            readable, _, _ = select.select([self.master], [], [], left)
            if readable:
                self.shown += os.read(self.master, 65536).decode(errors="replace")

    def press(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    def press_until_it_ends(self, key: str) -> int:
        """Again and again: a key that comes right after the question is dropped."""
        deadline = time.monotonic() + PATIENCE_S
        while self.process.poll() is None:
            assert time.monotonic() < deadline, self.shown
            self.press(key)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(0.3)
        return self.process.returncode


@contextmanager
def on_terminal(daemon: Daemon, *words: str, cwd: Path | None = None) -> Iterator[Terminal]:
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [*CTL, *words], stdin=slave, stdout=slave, stderr=slave, env=_env(daemon), cwd=cwd,
        start_new_session=True,
    )  # fmt: skip
    os.close(slave)
    try:
        yield Terminal(master, process)
    finally:
        process.kill()
        process.wait()
        os.close(master)


def test_the_queue_decides_by_listed_keys_only(
    daemon: Daemon, worker: Connection, tmp_path: Path
) -> None:
    number = worker.start("execute", _touch(tmp_path))
    with on_terminal(daemon, "approve") as terminal:
        terminal.wait_for("asks:")
        terminal.wait_for("touch made")
        terminal.press("y")  # too early: the prompt could not have been read yet
        time.sleep(0.6)
        for nothing in ("\r", "\n", " ", "x", "Y"):
            terminal.press(nothing)
        time.sleep(0.2)
        with connect_approver(daemon) as approver:
            assert len(pending(approver)) == 1
        terminal.press("d")
        terminal.wait_for("digest:")
        time.sleep(0.6)
        terminal.press("y")
        terminal.wait_for("allowed")
    assert worker.result(number)["exit_code"] == 0


def test_a_closed_terminal_decides_nothing(
    daemon: Daemon, worker: Connection, tmp_path: Path
) -> None:
    number = worker.start("execute", _touch(tmp_path))
    with on_terminal(daemon, "approve") as terminal:
        terminal.wait_for("touch made")
        time.sleep(0.6)
        terminal.press("\x04")
        assert terminal.process.wait(PATIENCE_S) == 0
    with connect_approver(daemon) as approver:
        (shown,) = pending(approver)
    listed = ctl(daemon, "approve", "--list")
    assert shown["approval"] in listed.stdout
    done = ctl(daemon, "approve", shown["approval"], "--deny", "not", "now")
    assert (done.returncode, "denied" in done.stdout) == (0, True), done.stderr
    answer_error(worker.answer(number), "ApprovalDenied", message="not now")


def test_session_open_runs_an_agent_whose_commands_belong_to_it(
    daemon: Daemon, tmp_path: Path
) -> None:
    agent = f"{' '.join(CTL)} run --json -- true; echo inside=${{SANDBOXD_SESSION%%:*}}; exit 3"
    words = ["session", "open", "--mode", "auto_edit", "--budget", "usd=2,runtime=10m"]
    done = ctl(daemon, *words, "--", "sh", "-c", agent, cwd=tmp_path)
    assert done.returncode == 3, done.stderr
    result, inside = done.stdout.strip().splitlines()
    session = inside.removeprefix("inside=")
    assert json.loads(result)["session"] == session
    listed = json.loads(ctl(daemon, "sessions", "--json").stdout)["sessions"]
    assert session not in [one["session"] for one in listed]  # it ended with its agent


def test_a_session_without_its_token_is_refused(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = ctl(daemon, "run", "--session", "se-1", "--", "true")
    assert "give --session as se-…:TOKEN" in refused.stderr
    monkeypatch.setenv("SANDBOXD_SESSION", "se-1")
    for words in (("run", "--", "true"), ("status",)):
        refused = ctl(daemon, *words)
        assert "give SANDBOXD_SESSION as se-…:TOKEN" in refused.stderr
        assert refused.returncode != 0


def test_run_in_another_mode_asks_here_only_with_the_flag(daemon: Daemon, tmp_path: Path) -> None:
    words = ["run", "--no-pty", "--mode", "default", "--workspace", str(tmp_path)]
    with on_terminal(daemon, *words, "--", "touch", "told", cwd=tmp_path) as terminal:
        terminal.wait_for("waits for an approval")
        terminal.wait_for("sandboxctl approve ap-")
        terminal.press("y")
        time.sleep(0.8)
        assert not (tmp_path / "told").exists()
    with on_terminal(daemon, *words, "--ask", "--", "touch", "asked", cwd=tmp_path) as terminal:
        terminal.wait_for("touch asked")
        time.sleep(0.7)
        terminal.press("y")
        assert terminal.process.wait(PATIENCE_S) == 0
    assert (tmp_path / "asked").exists()


def test_what_was_denied_is_allowed_by_the_command_that_is_shown(
    daemon: Daemon, tmp_path: Path
) -> None:
    for name in ("workspace", "other"):
        (tmp_path / name).mkdir()
    workspace, made = tmp_path / "workspace", tmp_path / "other" / "made"
    script = workspace / "agent.sh"
    script.write_text(
        f"""
        said=$(sandboxctl run -- touch {made} 2>&1 </dev/null)
        echo "$said"
        line=$(echo "$said" | sed -n 's/.*allowed: sandboxctl \\(approve [^ ]* --once\\).*/\\1/p')
        sandboxctl $line
        sandboxctl run -- touch {made} 2>&1 </dev/null
        """
    )
    tool = workspace / "sandboxctl"
    tool.write_text(f'#!/bin/sh\nexec {sys.executable} -m sandboxd_client.cli "$@"\n')
    tool.chmod(0o755)
    agent = ("env", f"PATH={workspace}:/usr/bin:/bin", "sh", str(script))
    done = ctl(daemon, "session", "open", "--mode", "auto_edit", "--", *agent, cwd=workspace)
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert "then run the same command again" in done.stdout
    assert made.exists()


def test_ask_decides_about_a_denial_and_runs_again(daemon: Daemon, tmp_path: Path) -> None:
    for name in ("workspace", "other"):
        (tmp_path / name).mkdir()
    workspace, made = tmp_path / "workspace", tmp_path / "other" / "made"
    words = ("run", "--mode", "auto_edit")
    told = ctl(daemon, *words, "--", "touch", str(made), cwd=workspace)
    assert (told.returncode, "with --ask you can allow it here" in told.stderr) == (1, True)
    asking = (*words, "--ask", "--", "touch", str(made))
    with on_terminal(daemon, *asking, cwd=workspace) as terminal:
        terminal.wait_for("quit")
        assert terminal.press_until_it_ends("y") == 0
    assert made.exists()


def test_a_session_of_one_command_is_named_as_such(daemon: Daemon, tmp_path: Path) -> None:
    words = ("run", "--mode", "default", "--", "touch", "made")
    with on_terminal(daemon, *words, cwd=tmp_path) as terminal:
        terminal.wait_for("--always, --deny")
        (waiting,) = json.loads(ctl(daemon, "approve", "--list", "--json").stdout)
        done = ctl(daemon, "approve", waiting["approval"], "--session")
        assert "for this command only" in done.stdout
        assert terminal.process.wait(PATIENCE_S) == 0
    assert (tmp_path / "made").exists()


def test_plan_mode_of_the_daemon(daemon: Daemon, tmp_path: Path) -> None:
    assert ctl(daemon, "plan", "on").returncode == 0
    try:
        refused = ctl(daemon, "run", "--", "touch", "made", cwd=tmp_path)
        assert (refused.returncode, "plan mode" in refused.stderr) == (125, True)
    finally:
        assert ctl(daemon, "plan", "off").returncode == 0
    assert ctl(daemon, "run", "--", "touch", "made", cwd=tmp_path).returncode == 0


def test_sessions_budget_top_grants_and_audit(
    daemon: Daemon, worker: Connection, tmp_path: Path
) -> None:
    worker.call("session/update", {"budget": {"max_tokens_in": 100}})
    worker.call("session/charge", {"tokens_in": 25})
    assert "fix the login" in ctl(daemon, "sessions").stdout
    assert "25 of 100 (25 %)" in ctl(daemon, "budget").stdout
    number = worker.start("execute", {"argv": ["sleep", "60"], "execution_id": "napping"})
    while "napping" not in (top := ctl(daemon, "top", "--once").stdout):
        pass
    assert "sleep 60" in top
    assert "napping" in ctl(daemon, "ps").stdout
    assert ctl(daemon, "kill", "napping").returncode == 0
    assert worker.result(number)["outcome"] == "cancelled"
    assert ctl(daemon, "grants").returncode == 0
    found = ctl(daemon, "audit", "--type", "budget.*", "--json").stdout.splitlines()
    assert {json.loads(line)["type"] for line in found} == {"budget.charged"}
    assert "unbroken" in ctl(daemon, "audit", "--verify").stdout


def test_who_asked_reads_the_deadline_and_the_words_of_the_approver(
    daemon: Daemon, tmp_path: Path
) -> None:
    words = ["run", "--no-pty", "--mode", "default", "--workspace", str(tmp_path)]
    with on_terminal(daemon, *words, "--", "touch", "made", cwd=tmp_path) as terminal:
        terminal.wait_for("no approver is connected: it is refused in 1")
        asked = ctl(daemon, "approve", "--list").stdout.split()[0]
        assert ctl(daemon, "approve", asked, "--deny", "use", "make").returncode == 0
        terminal.wait_for("the approver says: use make")
        assert terminal.process.wait(PATIENCE_S) == 125


def test_hints_are_in_the_words_of_the_shell(daemon: Daemon, tmp_path: Path) -> None:
    closed = ctl(daemon, "session", "close", "se-none")
    assert "sandboxctl sessions" in closed.stderr
    elsewhere = ctl(daemon, "run", "--cwd", "/root/x", "--", "true", cwd=tmp_path)
    assert "hint:  add --read /root/x" in elsewhere.stderr
    planned = ctl(daemon, "run", "--plan", "--", "touch", "x", cwd=tmp_path)
    assert "leave --plan out" in planned.stderr
    group = ctl(daemon, "run", "--net", "group:nosuch", "--", "true", cwd=tmp_path)
    assert "group:python, group:node" in group.stderr
    misspelt = ctl(daemon, "run", "--net", "al", "--", "true", cwd=tmp_path)
    assert "did you mean --net all?" in misspelt.stderr
