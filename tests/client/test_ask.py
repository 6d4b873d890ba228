"""`sandboxctl run --ask`: what it asks on its terminal, when, and what is no answer."""

from __future__ import annotations

import signal
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.daemon import Daemon, running_daemon
from support.rpc import PATIENCE_S
from support.session_terminal import ctl, on_terminal

pytestmark = pytest.mark.requires("bubblewrap")
OUTSIDE = "touch ../other/made"


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    with running_daemon() as daemon:
        yield daemon


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """With a folder `other` beside it."""
    for name in ("workspace", "other"):
        (tmp_path / name).mkdir()
    return tmp_path / "workspace"


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
        assert "  s " not in terminal.shown, "its session ends with the command"
        assert terminal.press_until_it_ends("y") == 0
    assert made.exists()


def test_a_refusal_is_not_answered_with_the_flag_that_was_given(
    daemon: Daemon, tmp_path: Path
) -> None:
    for name in ("workspace", "other"):
        (tmp_path / name).mkdir()
    asking = ("run", "--mode", "auto_edit", "--ask", "--", "touch", str(tmp_path / "other/made"))
    with on_terminal(daemon, *asking, cwd=tmp_path / "workspace") as terminal:
        terminal.wait_for("quit")
        assert terminal.press_until_it_ends("n") == 1
        assert "denied" in terminal.shown
        assert "--ask" not in terminal.shown


@pytest.mark.parametrize("trap", ["exec", "trap 'exit 1' INT;"])
def test_nothing_is_asked_after_ctrl_c(daemon: Daemon, workspace: Path, trap: str) -> None:
    """Whatever the command makes of it: the next keys are for the shell."""
    line = f"touch ../other/made; echo u''p; {trap} sleep 60"
    words = ("run", "--mode", "auto_edit", "--ask", "-c", line)
    with on_terminal(daemon, *words, cwd=workspace) as terminal:
        terminal.wait_for("up\r")
        terminal.press("\x03")
        assert terminal.end() == (-signal.SIGINT if trap == "exec" else 1)
        assert "quit" not in terminal.shown
        assert "denied: " in terminal.shown


def test_ctrl_c_at_a_question_ends_sandboxctl(daemon: Daemon, workspace: Path) -> None:
    first = ("run", "--mode", "default", "--ask", "--", "touch", "made")
    again = ("run", "--mode", "auto_edit", "--ask", "--", "touch", "../other/made")
    for words in (first, again):
        with on_terminal(daemon, *words, cwd=workspace) as terminal:
            terminal.wait_for("quit")
            time.sleep(0.6)
            terminal.press("\x03")
            assert terminal.end() == -signal.SIGINT, terminal.shown
    assert not (workspace / "made").exists()


def test_one_key_gives_no_lasting_grant(daemon: Daemon, workspace: Path) -> None:
    words = ("run", "--mode", "default", "--ask", "--", "touch", "made")
    with on_terminal(daemon, *words, cwd=workspace) as terminal:
        terminal.press("a\ry")  # before there is a question
        terminal.wait_for("a and Enter: always allow")
        terminal.wait_for("quit")
        time.sleep(0.6)
        terminal.press("a")
        terminal.wait_for("Enter confirms it")
        terminal.press("pt install y")
        terminal.wait_for("not confirmed")
        time.sleep(0.6)
        assert terminal.process.poll() is None
        assert "workspace" not in ctl(daemon, "grants").stdout
        terminal.press("a")
        time.sleep(0.2)
        terminal.press("\r")
        assert terminal.end() == 0, terminal.shown
    assert "workspace" in ctl(daemon, "grants").stdout


def test_a_question_that_is_left_says_how_it_is_decided_elsewhere(
    daemon: Daemon, workspace: Path
) -> None:
    words = ("run", "--mode", "default", "--ask", "--", "touch", "made")
    with on_terminal(daemon, *words, cwd=workspace) as terminal:
        terminal.answer("touch made", "q")
        terminal.wait_for("decide in another terminal: sandboxctl approve ap-")
        terminal.wait_for("--always, --deny)")
        assert "with --ask" not in terminal.shown, "it was given"
        asked = ctl(daemon, "approve", "--list").stdout.split()[0]
        assert ctl(daemon, "approve", asked, "--once").returncode == 0
        assert terminal.end() == 0
    assert (workspace / "made").exists()


def test_a_signal_ends_a_question_and_leaves_the_terminal_as_it_was(
    daemon: Daemon, workspace: Path
) -> None:
    for words in (("default", "--ask", "-c", "touch a"), ("auto_edit", "--ask", "-c", OUTSIDE)):
        with on_terminal(daemon, "run", "--mode", *words, cwd=workspace) as terminal:
            before = termios.tcgetattr(terminal.master)
            terminal.answer("touch", "")
            assert termios.tcgetattr(terminal.master) != before
            terminal.process.terminate()
            assert terminal.process.wait(PATIENCE_S) == 128 + signal.SIGTERM
            assert termios.tcgetattr(terminal.master) == before


def test_asking_without_a_terminal_is_refused_by_what_is_missing(
    daemon: Daemon, workspace: Path
) -> None:
    words = ("run", "--mode", "default", "--ask", "--", "true")
    assert "stdin is none" in ctl(daemon, *words, cwd=workspace).stderr
    with on_terminal(daemon, *words[:-2], "--no-stdin", "--", "true", cwd=workspace) as terminal:
        assert terminal.end() == 125
        assert "leave --no-stdin out" in terminal.shown
