"""`sandboxctl run --ask`: a connection that nobody named is asked about while the command waits."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from small_internet import Net
from support.daemon import Daemon
from support.session_terminal import Terminal, ctl, on_terminal

pytestmark = [pytest.mark.isolation, pytest.mark.requires("bubblewrap", "ip", "openssl")]
FETCH = "curl -sS --max-time 40 https://other.test/a"
CONNECTS = "connect to other.test at port 443?"


@pytest.fixture
def daemon(start_in_net: Callable[..., Daemon]) -> Daemon:
    return start_in_net("ask_secs = 20")


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / "other").mkdir()
    (tmp_path / "workspace").mkdir()
    return tmp_path / "workspace"


@contextmanager
def _asked(
    daemon: Daemon, net: Net, workspace: Path, line: str, stdout: int | None = None
) -> Iterator[Terminal]:
    """After the question whether it may run at all."""
    words = (
        "run", "--mode", "auto_edit", "--net", "example.test", "--read", str(net.folder),
        "--env", f"CURL_CA_BUNDLE={net.ca}", "--ask", "-c", line,
    )  # fmt: skip
    with on_terminal(daemon, *words, cwd=workspace, stdout=stdout) as terminal:
        terminal.answer("connecting to example.test?", "y")
        yield terminal


def test_one_answer_here_lets_the_command_go_on(daemon: Daemon, net: Net, workspace: Path) -> None:
    """What it prints meanwhile is shown after the answer, and keys are the command's again."""
    line = f"(sleep 0.3; echo mean''while) & {FETCH}; read word; echo got=$word"
    with _asked(daemon, net, workspace, line) as terminal:
        terminal.wait_for(CONNECTS)
        assert "another terminal" not in terminal.shown
        time.sleep(0.5)
        terminal.answer(CONNECTS, "y")
        terminal.wait_for("other.test /a")
        terminal.wait_for("meanwhile")
        terminal.press("typed\r")
        assert terminal.end() == 0
        assert "got=typed" in terminal.shown
        after = terminal.shown.partition(CONNECTS)[2]
        assert after.index("allowed") < after.index("meanwhile")
        assert after.count("q quit") == 1, "no second question"


def test_what_was_allowed_is_not_asked_again_when_the_command_runs_again(
    daemon: Daemon, net: Net, workspace: Path
) -> None:
    line = f"{FETCH} && touch {workspace.parent}/other/made"
    with _asked(daemon, net, workspace, line) as terminal:
        terminal.answer(CONNECTS, "y")
        terminal.answer("allow writing", "y")
        assert terminal.end() == 0, terminal.shown
        assert terminal.shown.count("q quit") == 3
        assert terminal.shown.count("allowed as before: ") == 2
    assert (workspace.parent / "other" / "made").exists()


def test_what_was_refused_here_is_not_asked_again(
    daemon: Daemon, net: Net, workspace: Path
) -> None:
    with _asked(daemon, net, workspace, FETCH) as terminal:
        terminal.answer(CONNECTS, "n")
        assert terminal.end() == 35
        assert terminal.shown.count("q quit") == 2
        assert "add: --net other.test" in terminal.shown


@pytest.mark.parametrize("end", ["key", "signal"])
def test_the_question_does_not_outlive_a_signal(
    daemon: Daemon, net: Net, workspace: Path, end: str
) -> None:
    with _asked(daemon, net, workspace, f"{FETCH}; sleep 60") as terminal:
        terminal.answer(CONNECTS, "\x03" if end == "key" else "")
        if end == "signal":
            terminal.process.terminate()
        assert terminal.end() == (-2 if end == "key" else 143), terminal.shown
    assert ctl(daemon, "approve", "--list").stdout == ""


def test_a_redirected_stdout_gets_no_question(daemon: Daemon, net: Net, workspace: Path) -> None:
    with (
        open(workspace / "out", "wb") as file,
        _asked(daemon, net, workspace, FETCH, file.fileno()) as terminal,
    ):
        terminal.answer(CONNECTS, "y")
        assert terminal.end() == 0, terminal.shown
    assert (workspace / "out").read_text() == "other.test /a\n"
