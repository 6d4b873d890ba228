"""A pseudoterminal made by the daemon, for sandboxes that share the host's /dev/pts.

The whole of /dev/pts cannot be opened to a command there: the user's own terminals are in it.
"""

from __future__ import annotations

import os
import termios
from dataclasses import dataclass

from sandboxd.platform.window_size import set_window_size
from sandboxd.policy.plan import RunAs
from sandboxd.types import PtyRequest


@dataclass(slots=True)
class Terminal:
    """Both ends, close-on-exec. `path` is how a command may open its own again."""

    master: int
    slave: int
    path: str

    def prepare(self, request: PtyRequest) -> None:
        """Set the size, and whether it shows what is written to it."""
        set_window_size(self.master, request.rows, request.cols)
        settings = termios.tcgetattr(self.slave)
        echo = termios.ECHO | termios.ECHOE | termios.ECHOK
        settings[3] = settings[3] | echo if request.echo else settings[3] & ~echo
        termios.tcsetattr(self.slave, termios.TCSANOW, settings)

    def take_master(self) -> int:
        master, self.master = self.master, -1
        return master

    def close(self) -> None:
        for fd in (self.master, self.slave):
            if fd >= 0:
                os.close(fd)
        self.master = self.slave = -1


def open_terminal(run_as: RunAs | None) -> Terminal:
    master, slave = os.openpty()
    if run_as is not None:
        os.fchown(slave, run_as.uid, -1)
    return Terminal(master, slave, os.ttyname(slave))
