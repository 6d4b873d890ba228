"""A terminal of the command's own: its size, its session, its signals, its end."""

from __future__ import annotations

import errno
import os
import select
import signal

from init_driver import PATIENCE_S, Command, Init

from sandboxd.linux.init_client import messages as wire

PTY = wire.ExecFlag.PTY


def read_until(command: Command, text: bytes | None) -> bytes:
    """What the terminal shows, until it shows `text` or, without one, until it hangs up."""
    shown = b""
    while text is None or text not in shown:
        ready, _, _ = select.select([command.master], [], [], PATIENCE_S)
        assert ready, shown
        try:
            data = os.read(command.master, 65536)
        except OSError as error:
            # On Linux this means that no process has the terminal open any more.
            if error.errno != errno.EIO:
                raise
            data = b""
        if not data:
            assert text is None, shown
            break
        shown += data
    return shown


def test_size_and_controlling_terminal(init: Init) -> None:
    script = """
import os, fcntl, struct, termios
print([os.isatty(fd) for fd in (0, 1, 2)], os.ttyname(0) == os.ttyname(2))
print(struct.unpack("HHHH", fcntl.ioctl(0, termios.TIOCGWINSZ, bytes(8)))[:2])
print(os.tcgetpgrp(0) == os.getpgrp() == os.getsid(0) == os.getpid())
open("/dev/tty", "w").write("by name\\n")
print(sorted(os.listdir("/proc/self/fd")))
"""
    command = init.python(script, flags=PTY, rows=33, columns=77)
    command.started()
    assert command.master >= 0
    shown = read_until(command, None).decode().split("\r\n")
    os.close(command.master)
    assert shown[:5] == [
        "[True, True, True] True",
        "(33, 77)",
        "True",
        "by name",
        "['0', '1', '2', '3']",
    ]
    ended = command.wait()
    assert (ended.kinds, ended.code) == (["StartedMessage", "ExitedMessage", "Gone"], 0)


def test_what_is_typed_reaches_the_command(init: Init) -> None:
    command = init.shell("read line; echo got:$line", flags=PTY, rows=24, columns=80)
    command.started()
    os.write(command.master, b"hello\n")
    read_until(command, b"got:hello")
    assert command.wait().code == 0
    os.close(command.master)


def test_control_c_interrupts(init: Init) -> None:
    command = init.shell("echo up; exec sleep 600", flags=PTY)
    command.started()
    read_until(command, b"up")
    os.write(command.master, b"\x03")
    assert command.wait().signal == signal.SIGINT
    os.close(command.master)


def test_a_signal_reaches_the_job_in_the_foreground(init: Init) -> None:
    """A shell with job control gives each job a group of its own."""
    script = """
import os, signal, sys, time
signal.signal(signal.SIGUSR1, signal.SIG_IGN)
child = os.fork()
if child == 0:
    os.setpgid(0, 0)
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    os.tcsetpgrp(0, os.getpgrp())
    # Waited for, not handled: a handler that runs just before a sleep does not shorten it.
    signal.signal(signal.SIGUSR1, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    print("foreground", flush=True)
    signal.sigwait([signal.SIGUSR1])
    os._exit(9)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    command = init.python(script, flags=PTY)
    command.started()
    read_until(command, b"foreground")
    command.send(wire.Signal(number=signal.SIGUSR1))
    assert command.wait().code == 9
    os.close(command.master)


def test_closing_the_master_hangs_up(init: Init) -> None:
    command = init.shell("echo up; exec sleep 600", flags=PTY)
    command.started()
    read_until(command, b"up")
    os.close(command.master)
    assert command.wait().signal == signal.SIGHUP
