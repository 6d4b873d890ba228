"""`sandboxctl run` in a real terminal: a terminal inside, raw mode here, Ctrl-C, its end."""

from __future__ import annotations

import os
import shlex
import signal
import time

import pytest

from sandboxd_client.cli.help import KEYS
from sandboxd_client.cli.output import TerminalOutput
from sandboxd_client.cli.suspension import Suspension

SLEEPER = ("sh", "-c", "echo ready; exec sleep 60")


def test_the_command_has_a_terminal_of_the_same_size(ctl, screen):
    shown = screen(ctl.argv("run", "--", "sh", "-c", "test -t 0 && test -t 1 && stty size"))
    assert shown.end() == 0
    assert b"31 97" in shown.shown


def test_raw_mode_while_it_runs_and_the_old_mode_afterwards(ctl, screen):
    shown = screen(
        ctl.argv("run", "--", "sh", "-c", "echo ready; read line; echo got=$line; exit 3")
    )
    shown.until(b"ready")
    assert shown.mode() != shown.before
    shown.type(b"hello\r")
    shown.until(b"got=hello")
    assert shown.end() == 3
    assert shown.mode() == shown.before


def test_a_resize_reaches_the_command(ctl, screen):
    script = "trap 'stty size' WINCH; echo ready; while :; do sleep 0.1; done"
    shown = screen(ctl.argv("run", "--", "sh", "-c", script))
    shown.until(b"ready")
    shown.resize(40, 111)
    shown.until(b"40 111")
    shown.process.send_signal(signal.SIGTERM)
    assert shown.end() == 143
    assert shown.mode() == shown.before


def test_one_interrupt_is_the_commands_own(ctl, screen):
    shown = screen(ctl.argv("run", "--", *SLEEPER))
    shown.until(b"ready")
    shown.until_raw()
    shown.type(b"\x03")
    assert shown.end() == -signal.SIGINT
    assert shown.mode() == shown.before


def test_a_second_interrupt_kills_what_ignored_the_first(ctl, screen, fake):
    shown = screen(ctl.argv("run", "--", "sh", "-c", "trap '' INT; echo ready; sleep 60"))
    shown.until(b"ready")
    shown.until_raw()
    shown.type(b"\x03")
    shown.until(b"^C")
    assert shown.process.poll() is None
    shown.type(b"\x03")
    assert shown.end() == -signal.SIGINT
    assert shown.mode() == shown.before
    assert not fake.commands


@pytest.mark.parametrize("flags", [(), ("--no-pty",)])
@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_one_interrupt_ends_a_script_that_calls_it_in_a_loop(ctl, screen, flags, shell):
    script = 'for i in 1 2 3; do echo round $i; "$@"; done; echo after'
    shown = screen([shell, "-c", script, "x", *ctl.argv("run", *flags, "--", *SLEEPER)])
    shown.until(b"ready")
    if not flags:
        shown.until_raw()
    shown.type(b"\x03")
    assert shown.end() == -signal.SIGINT
    assert b"round 2" not in shown.shown
    assert b"after" not in shown.shown
    assert shown.mode() == shown.before


def test_a_command_that_takes_the_interrupt_and_exits_does_not_end_the_script(ctl, screen):
    script = "trap 'exit 130' INT; echo ready; while :; do sleep 0.1; done"
    calls = ["sh", "-c", '"$@"; echo code=$?', "x", *ctl.argv("run", "--", "sh", "-c", script)]
    shown = screen(calls)
    shown.until(b"ready")
    shown.until_raw()
    shown.type(b"\x03")
    shown.until(b"code=130")
    assert shown.end() == 0


def test_a_command_that_interrupts_itself_does_not_interrupt_the_caller(ctl, screen):
    shown = screen(["sh", "-c", '"$@"; echo code=$?', "x",
                    *ctl.argv("run", "--", "sh", "-c", "kill -INT $$")])  # fmt: skip
    shown.until(b"code=130")
    assert shown.end() == 0


def test_ctrl_backslash_ends_like_the_command(ctl, screen):
    shown = screen(ctl.argv("run", "--", *SLEEPER))
    shown.until(b"ready")
    shown.until_raw()
    shown.type(b"\x1c")
    assert shown.end() == -signal.SIGQUIT


def test_a_program_that_uses_the_key_is_not_killed_by_it(ctl, screen):
    script = "trap 'echo again' INT; echo ready; while :; do sleep 0.1; done"
    shown = screen(ctl.argv("run", "--", "sh", "-c", script))
    shown.until(b"ready")
    shown.until_raw()
    for count in range(1, 4):
        shown.type(b"\x03")
        deadline = time.monotonic() + 10
        while shown.shown.count(b"again") < count and time.monotonic() < deadline:
            shown.look()
        assert shown.shown.count(b"again") == count
    assert "gets each Ctrl-C: Ctrl-\\ ends it" in " ".join(KEYS.split())
    shown.type(b"\x1c")
    assert shown.end() == -signal.SIGQUIT


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_the_mode_is_restored_when_sandboxctl_is_told_to_end(ctl, screen, number, code):
    shown = screen(ctl.argv("run", "--", *SLEEPER))
    shown.until(b"ready")
    shown.until_raw()
    shown.process.send_signal(number)
    assert shown.end() == code
    assert shown.mode() == shown.before


def test_the_mode_is_restored_when_the_daemon_vanishes(ctl, screen, fake):
    shown = screen(ctl.argv("run", "--", *SLEEPER))
    shown.until(b"ready")
    shown.until_raw()
    fake.close()
    assert shown.end() == 125
    assert shown.mode() == shown.before


def test_a_stopped_sandboxctl_gives_the_terminal_back_and_takes_it_again(ctl, screen):
    shown = screen(ctl.argv("run", "--", *SLEEPER))
    shown.until(b"ready")
    shown.until_raw()
    shown.process.send_signal(signal.SIGTSTP)
    _, status = os.waitpid(shown.process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    assert shown.mode() == shown.before
    shown.process.send_signal(signal.SIGCONT)
    shown.until_raw()
    shown.type(b"\x03")
    assert shown.end() == -signal.SIGINT


@pytest.mark.parametrize(
    ("printed", "stops"),
    [
        ([b"^Z"], True),  # by its terminal's own echo
        ([b"\r\x1b[K\x1b[?1l\x1b>\x1b[?1049l", b"\x1b[23;0;0t\x1b[?1049h\x1b[Htext"], True),
        ([b"\x1b[24;1H\x1b[?10", b"49l\r", b"\x1b[?1049h"], True),
        ([b"\x1b[?1049l\r\n[1]+  Stopped  vim\r\n$ "], False),  # by a shell inside
        ([b"\x1b[?1l\x1b>fg\r\n", b"\x1b[?1049h"], False),
        ([b"undone"], False),
        ([b"x" * 70_000, b"\x1b[?1049l\x1b[?1049h"], False),
    ],
)
def test_what_a_program_prints_after_ctrl_z_tells_whether_it_wanted_to_stop(printed, stops):
    asked = Suspension()
    now = later = b""
    for data in printed:
        if not asked.over:
            shown, held = asked.shown(data)
            now, later = now + shown, later + held
    assert asked.wanted == stops
    assert b"\x1b[?1049h" not in now
    assert not later or later.startswith(b"\x1b[?1049h")


def test_a_program_that_gives_the_terminal_back_and_is_silent_has_stopped(monkeypatch):
    asked = Suspension()
    asked.look()
    assert not asked.wanted
    asked.shown(b"\x1b[?1l\x1b>\x1b[25;1H")
    asked.look()
    assert not asked.wanted
    monkeypatch.setattr("sandboxd_client.cli.suspension.time.monotonic", lambda: 1e12)
    asked.look()
    assert asked.wanted


def test_without_a_terminal_on_stdout_there_are_pipes(ctl, screen):
    line = " ".join(
        ctl.argv("run", "--", "sh", "-c", "'test -t 1 || echo pipe; test -t 0 || echo in'")
    )
    shown = screen(["sh", "-c", f"{line} | cat"])
    assert shown.end() == 0
    assert b"pipe\r\nin\r\n" in shown.shown


def test_no_pty_gives_pipes_in_a_terminal(ctl, screen):
    shown = screen(ctl.argv("run", "--no-pty", "--", "sh", "-c", "test -t 1 || echo pipe"))
    assert shown.end() == 0
    assert b"pipe" in shown.shown


def test_a_typed_line_and_end_of_file_reach_a_command_on_pipes(ctl, screen):
    shown = screen(ctl.argv("run", "--no-pty", "--", "sh", "-c", "echo ready; cat; echo end"))
    shown.until(b"ready")
    shown.type(b"line\n")
    shown.until(b"line\r\nline\r\n")  # the terminal's echo, then cat's
    shown.type(b"\x04")
    assert shown.end() == 0
    assert b"end" in shown.shown


def test_keys_for_a_pager_are_left_to_the_pager(ctl, screen, fake):
    """Another program in the pipeline switched the terminal: what is typed is not ours to read."""
    line = " ".join(ctl.argv("run", "--", "sh", "-c", "'echo up; sleep 60'"))
    keys = "dd bs=1 count=3 < /dev/tty 2>/dev/null"
    pager = f"stty -icanon -echo < /dev/tty; head -n 1; {keys}; echo .read"
    shown = screen(["sh", "-c", f"{line} | {{ {pager}; }}"])
    shown.until(b"up")
    time.sleep(0.3)
    shown.type(b"xyz")
    shown.until(b"xyz.read")
    assert "execution/write" not in fake.methods()


def test_in_the_background_it_neither_stops_nor_reads(ctl, screen):
    line = " ".join(ctl.argv("run", "--", "sh", "-c", "'echo out=1; sleep 0.3; exit 4'"))
    shown = screen(["bash", "-m", "-c", f"{line} & wait $!; echo code=$?"])
    assert shown.end() == 0
    assert b"out=1" in shown.shown
    assert b"code=4" in shown.shown


def test_pty_without_a_terminal_here(ctl):
    done = ctl("run", "--pty", "--", "sh", "-c", "stty size; test -t 0 && echo tty")
    assert done.stdout == b"24 80\r\ntty\r\n"


def test_a_workspace_elsewhere_says_where_the_command_starts(inside, folder, screen):
    other = folder / "other"
    other.mkdir()
    line = b"sandboxctl: starts in "
    for flags, told in (
        (["-w", str(other)], True),
        (["-w", str(other), "--cwd", str(other)], False),
        (["-q", "-w", str(other)], False),
        (["-w", str(inside.workspace)], False),
    ):
        shown = screen(inside.argv("run", *flags, "--", "pwd"))
        assert shown.end() == 0
        assert (line in shown.shown) is told
    assert line not in inside("run", "-w", str(other), "pwd").stderr  # no terminal


def test_our_lines_begin_at_the_margin_of_a_raw_terminal(ctl, screen, fake):
    """Also after a prompt, which follows them again."""
    asked = {"approval": "ap-1", "state": "pending", "question": "connect to x at port 443?"}
    fake.handlers["approval/wait"] = lambda c, p, i: asked
    shown = screen(ctl.argv("run", "--", "sh", "-c", "printf 'name? '; exec sleep 60"))
    shown.until(b"name? ")
    shown.until_raw()
    pending = {"approval": "ap-1", "approvers": 0, "expires_ms": (time.time() + 15) * 1000}
    fake.connections[-1].notify("execution/pending", execution_id="x", **pending)
    shown.until(b"unless one comes by then\r\n")
    lines = shown.shown.split(b"\r\n")
    assert lines[-5] == b"name? "
    assert lines[-4] == b"sandboxctl: waits for an approval: connect to x at port 443?"
    again = b"name? \r\x1b[Ksandboxctl: "
    assert lines[-3].startswith(again + b"decide in another terminal: sandboxctl approve ap-1")
    assert lines[-2].startswith(again + b"no approver is connected: it is refused in 1")
    assert b"\n" not in b"".join(lines)
    shown.type(b"\x03")
    assert shown.end() == -signal.SIGINT


def test_errors_begin_at_the_margin_where_another_program_has_the_terminal_raw(ctl, screen):
    script = "stty -opost; " + shlex.join(ctl.argv("run", "--net", "al", "--", "true"))
    shown = screen(["sh", "-c", f"{script}; stty opost"])
    shown.end()
    assert b"hint:" in shown.shown
    assert shown.shown.count(b"\n") == shown.shown.count(b"\r\n") > 1


def test_the_prompt_follows_again_below_a_line_of_ours(monkeypatch):
    """What was printed of a line that is longer than a prompt is not repeated."""
    written = bytearray()

    def write(fd: int, data: bytes) -> int:
        written.extend(data)
        return len(data)

    monkeypatch.setattr(os, "isatty", lambda fd: True)
    monkeypatch.setattr(os, "write", write)

    def shown(output: TerminalOutput) -> bytes:
        written.clear()
        while output.waiting_for is not None:
            output.write()
        return bytes(written)

    output = TerminalOutput()
    output.add(1, b"out\n(sandbox) ")
    output.add(1, b"$ ")
    output.add_line("denied\n")
    output.add_line("more\n")
    first = b"out\n(sandbox) $ \r\ndenied\n(sandbox) $ "
    assert shown(output) == first + b"\r\x1b[Kmore\n(sandbox) $ "
    output.add(1, b"\n")
    output.add_line("denied\n")
    assert shown(output) == b"\ndenied\n"
    output.add(1, b"x" * 2000)
    output.add_line("denied\n")
    assert shown(output).endswith(b"x\r\ndenied\n")
    monkeypatch.setattr(os, "isatty", lambda fd: fd == 2)
    output.add(1, b"private")
    output.add_line("denied\n")
    assert shown(output).count(b"private") == 1
