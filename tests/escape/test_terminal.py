"""The user's terminal: typing into it, reading from it, taking it over."""

from __future__ import annotations

import os
import pty
import select
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.attacks import Box, freely, python, weakest
from support.backends import running_backend

pytestmark = pytest.mark.isolation

# With a terminal as the controlling one, what is named.
WITH_TERMINAL = python("""
    os.setsid()
    os.close(os.open(args[0], os.O_RDWR))
    os.execvp(args[1], args[1:])
""")
TYPE_INTO = python("""
    import fcntl, termios
    terminal = os.open(args[0], os.O_RDWR)
    for byte in b"id\\n":
        fcntl.ioctl(terminal, termios.TIOCSTI, bytes([byte]))
    worked()
""")


@dataclass
class Terminal:
    master: int
    path: str

    def typed(self) -> bytes:
        """What shows on it now: an echo of what was typed, or what was written."""
        seen = b""
        while select.select([self.master], [], [], 0.2)[0]:
            seen += os.read(self.master, 1024)
        return seen


@pytest.fixture(scope="module")
def terminal() -> Iterator[Terminal]:
    master, slave = pty.openpty()
    yield Terminal(master, os.ttyname(slave))
    os.close(slave)
    os.close(master)


@pytest.fixture(scope="module")
def box_on_terminal(linux_backend: Box, terminal: Terminal) -> Iterator[Box]:
    """A daemon that was started in a terminal and keeps it as its controlling one."""
    prefix = [*WITH_TERMINAL, terminal.path]
    with running_backend(linux_backend.backend, prefix=prefix) as daemon:
        box = Box(linux_backend.backend, daemon)
        yield box
        box.close()


def _may_type() -> bool:
    """Linux 6.2 lets an administrator forbid TIOCSTI; root's capability is exempt."""
    setting = Path("/proc/sys/dev/tty/legacy_tiocsti")
    return os.geteuid() == 0 or not setting.exists() or setting.read_text().strip() == "1"


def test_nothing_is_typed_into_the_controlling_terminal(
    box_on_terminal: Box, terminal: Terminal
) -> None:
    """TIOCSTI on /dev/tty: the shell that started the daemon would run it."""
    own_master, own_slave = pty.openpty()
    try:
        control = freely((*WITH_TERMINAL, os.ttyname(own_slave), *TYPE_INTO), "/dev/tty")
        assert control.worked == _may_type()
    finally:
        os.close(own_master)
        os.close(own_slave)
    assert box_on_terminal.attack(TYPE_INTO, "/dev/tty").blocked
    assert terminal.typed() == b""


def test_terminal_of_the_host_is_not_opened_by_name(box: Box, terminal: Terminal) -> None:
    """/dev/pts/N of another session: read keystrokes, write to the screen."""
    attack = python("os.write(os.open(args[0], os.O_RDWR | os.O_NOCTTY), b'attack'); worked()")
    assert freely(attack, terminal.path).worked
    assert terminal.typed() == b"attack"
    for manifest in ({}, weakest()):
        assert box.attack(attack, terminal.path, manifest=manifest).blocked
    assert terminal.typed() == b""


def test_own_terminal_of_a_command_is_not_the_hosts(
    box_on_terminal: Box, terminal: Terminal
) -> None:
    """A command with a pty types into that: it must end there."""
    ran = box_on_terminal.run(
        *TYPE_INTO, "/dev/tty", pty={"rows": 24, "cols": 80}, manifest=weakest()
    )
    assert ran.outcome == "exited", ran.raw
    assert terminal.typed() == b""


def test_typing_is_filtered_in_presets(box: Box) -> None:
    """TIOCSTI in the command's own terminal, for a shell that goes on reading it after us."""
    params = {"pty": {"rows": 24, "cols": 80}}
    control = box.run(*TYPE_INTO, "/dev/tty", manifest=weakest(), **params)
    if box.firm:
        assert (control.exit_code == 42) == _may_type_inside()
    ran = box.run(*TYPE_INTO, "/dev/tty", preset="read-only", **params)
    assert ran.exited(43), ran.raw


def _may_type_inside() -> bool:
    setting = Path("/proc/sys/dev/tty/legacy_tiocsti")
    return not setting.exists() or setting.read_text().strip() == "1"


def test_command_has_no_controlling_terminal(box_on_terminal: Box, terminal: Terminal) -> None:
    """Open /dev/tty at all: read what the user types."""
    attack = python("os.open('/dev/tty', os.O_RDWR); worked()")
    own_master, own_slave = pty.openpty()
    try:
        assert freely((*WITH_TERMINAL, os.ttyname(own_slave), *attack)).worked
    finally:
        os.close(own_master)
        os.close(own_slave)
    assert box_on_terminal.attack(attack).blocked
