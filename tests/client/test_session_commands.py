"""`sandboxctl` for sessions and approvals: what it prints, and that only a key decides."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.daemon import Daemon, running_daemon
from support.rpc import PATIENCE_S, Connection
from support.session_terminal import CTL, ctl, environment, on_terminal
from support.sessions import answer_error, connect_approver, open_session, pending

pytestmark = pytest.mark.requires("bubblewrap")


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    with running_daemon() as daemon:
        yield daemon


@pytest.fixture
def worker(daemon: Daemon) -> Iterator[Connection]:
    with daemon.connect() as connection:
        open_session(connection, title="fix the login")
        yield connection


def _touch(tmp_path: Path) -> dict[str, object]:
    preset = {"preset": "workspace-write", "workspace": str(tmp_path)}
    return {"argv": ["touch", "made"], **preset}


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


def test_a_used_up_budget_is_said_and_raised(daemon: Daemon, tmp_path: Path) -> None:
    one = " ".join(CTL)
    agent = f"""
        {one} run -- sleep 60; echo ended=$?
        {one} run -- true; echo refused=$?
        id=${{SANDBOXD_SESSION%%:*}}
        {one} budget $id --raise runtime=300ms || {one} budget $id --raise usd=2
        {one} budget $id --raise runtime=10m && {one} run -- echo goes on
        """
    opened = ("session", "open", "--mode", "force", "--budget", "runtime=500ms")
    done = ctl(daemon, *opened, "--", "sh", "-c", agent, cwd=tmp_path)
    assert done.stdout.startswith("ended=124\nrefused=125\nse-"), done
    assert " of 10m (0 %)\ngoes on\n" in done.stdout
    raising = "an approver raises it: sandboxctl budget se-"
    assert f"ended: the session's budget of runtime=500ms is used up; {raising}" in done.stderr
    assert f"runtime=500ms is used up\n  hint:  {raising}" in done.stderr
    assert "--raise runtime=1s" in done.stderr
    assert "runtime=300ms raises nothing: the session may use runtime=500ms" in done.stderr
    assert "usd=2 raises nothing: the session has no such limit" in done.stderr
    assert "session/update" not in done.stderr


def test_plan_off_says_where_plan_mode_stays_and_ends_it_there(
    daemon: Daemon, tmp_path: Path
) -> None:
    one = " ".join(CTL)
    agent = f"""
        {one} plan on
        {one} run -- touch made; {one} run --plan --preset workspace-write -- touch made
        {one} plan off
        {one} run -- touch made
        {one} plan off ${{SANDBOXD_SESSION%%:*}}
        {one} run --mode plan --preset workspace-write -- touch made
        {one} run -- touch made && {one} plan off
        """
    opened = ("session", "open", "--mode", "force", "--plan", "--title", "look", "--", "sh", "-c")
    done = ctl(daemon, *opened, f"{agent} echo id=$SANDBOXD_SESSION", cwd=tmp_path)
    session = done.stdout.rpartition("id=")[2].partition(":")[0]
    assert done.stdout.count("plan mode is off, but not in every session\n") == 1
    assert done.stdout.count("plan mode is off\n") == 2
    hints = [line for line in done.stderr.splitlines() if "hint:" in line]
    ends = f"sandboxctl plan off {session}"
    wanted = [
        f"or end plan mode as an approver: {ends} and sandboxctl plan off",
        f"or leave --plan out and end plan mode as an approver: {ends} and sandboxctl plan off",
        f"or end plan mode as an approver: {ends}",
        "or leave --mode plan out",
    ]
    assert [hint.partition("network, ")[2] for hint in hints[:4]] == wanted, done.stderr
    assert f"these and all below them keep it: {session} look\n" in done.stderr
    assert done.stderr.count(f"to end it there: {ends}\n") == 1


def test_plan_off_for_a_session_says_what_still_holds_above_it(daemon: Daemon) -> None:
    with daemon.connect() as connection:
        above = open_session(connection, mode="plan")["session"]
        below = open_session(connection, mode="plan")["session"]
        ctl(daemon, "plan", "on")
        done = ctl(daemon, "plan", "off", below)
        assert done.stdout == f"{below}: plan mode is off\n"
        assert "plan mode is on for every session, which ends with: sandboxctl" in done.stderr
        assert f"to end it there: sandboxctl plan off {above}\n" in done.stderr
        assert ctl(daemon, "plan", "off", above).returncode == 0
        done = ctl(daemon, "plan", "off")
        assert (done.stdout, done.stderr) == ("plan mode is off\n", "")
    unknown = ctl(daemon, "plan", "off", "se-1")
    assert (unknown.returncode, "there is no session" in unknown.stderr) == (125, True)
    assert ctl(daemon, "plan", "of").returncode == 2


def _interrupted_agent(daemon: Daemon, script: str) -> subprocess.CompletedProcess[str]:
    """Ctrl-C is a signal to the whole process group, of which sandboxctl is one."""
    process = subprocess.Popen(
        [*CTL, "session", "open", "--", "bash", "-c", script], env=environment(daemon), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE_S)
    return subprocess.CompletedProcess([], process.returncode, out, err)


def test_an_agent_that_uses_ctrl_c_goes_on_and_one_that_dies_of_it_takes_us_along(
    daemon: Daemon,
) -> None:
    patient = "trap 'echo got' INT; echo up; sleep 1; sleep 1; echo end; exit 5"
    used = _interrupted_agent(daemon, patient)
    assert (used.returncode, used.stdout) == (5, "got\nend\n"), used.stderr
    died = _interrupted_agent(daemon, "echo up; exec sleep 60")
    assert (died.returncode, died.stderr) == (-signal.SIGINT, "")


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
    kinds = {json.loads(line)["type"] for line in found}
    assert "budget.charged" in kinds
    assert kinds <= {"budget.charged", "budget.warned", "budget.exceeded"}  # of other tests
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
    hidden = tmp_path.parent / f"{tmp_path.name}-elsewhere"
    hidden.mkdir()
    elsewhere = ctl(daemon, "run", "--cwd", str(hidden), "--", "true", cwd=tmp_path)
    assert f"hint:  add --read {hidden}" in elsewhere.stderr
    for flags, can in (
        (["--preset", "workspace-write"], "this one can write the workspace, whatever the command"),
        (["--net", "all"], "this one can use other paths, the network or an image"),
    ):
        planned = ctl(daemon, "run", "--plan", *flags, "--", "ls", cwd=tmp_path)
        assert "the session is in plan mode" in planned.stderr
        assert can in planned.stderr
        assert "leave --plan out" in planned.stderr
    for flags in (["--plan"], ["--mode", "plan"]):
        assert ctl(daemon, "run", *flags, "--", "ls", cwd=tmp_path).returncode == 0
        written = ctl(daemon, "run", *flags, "--", "touch", "x", cwd=tmp_path)
        assert f"plan mode allows nothing more: leave {' '.join(flags)} out" in written.stderr
    group = ctl(daemon, "run", "--net", "group:nosuch", "--", "true", cwd=tmp_path)
    assert "group:python, group:node" in group.stderr
    misspelt = ctl(daemon, "run", "--net", "al", "--", "true", cwd=tmp_path)
    assert "did you mean --net all?" in misspelt.stderr
