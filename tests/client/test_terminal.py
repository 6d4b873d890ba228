"""`sandboxctl run` in a real terminal: a terminal inside, raw mode here, Ctrl-C, its end."""

from __future__ import annotations

import os
import signal
import time

import pytest

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
    assert shown.end() == 130
    assert shown.mode() == shown.before


def test_a_second_interrupt_kills_what_ignored_the_first(ctl, screen, fake):
    shown = screen(ctl.argv("run", "--", "sh", "-c", "trap '' INT; echo ready; sleep 60"))
    shown.until(b"ready")
    shown.until_raw()
    shown.type(b"\x03")
    shown.until(b"^C")
    assert shown.process.poll() is None
    shown.type(b"\x03")
    assert shown.end() == 130
    assert shown.mode() == shown.before
    assert not fake.commands


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
    shown.process.send_signal(signal.SIGTERM)
    assert shown.end() == 143


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
    assert shown.end() == 130


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
