"""The process tree of a command: send signals to all of it, and kill it reliably."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress

import anyio
import msgspec

from sandboxd.macos.census import Census

assert sys.platform != "win32"

log = logging.getLogger(__name__)
LOOK_S = 0.002
MOST_LOOKS = 2000
Kill = Callable[[int, int], None]


class Tree(msgspec.Struct, frozen=True):
    """`leader`: the first process, whose group is the command's own (it was started by setsid).

    The group is signalled as well: before the sandbox is up the census finds no process.
    """

    census: Census
    tag: str
    uid: int
    leader: int
    kill: Kill = os.kill

    def members(self) -> list[int]:
        return self.census.members(self.tag, self.uid)

    def signal(self, number: int) -> None:
        for pid in {*self.members()}:
            self.send(pid, number)

    def end_once(self, *, group: bool) -> bool:
        """Kill what is found now; whether anything was found. `group`: the leader is not reaped.

        All of them are stopped first, so that none forks while the others are killed.
        """
        if group:
            self.send(-self.leader, signal.SIGKILL)
        found = self.members()
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in found:
                self.send(pid, number)
        return bool(found)

    async def end(self) -> bool:
        """Until two looks in a row find no process: the second finds what was forked meanwhile."""
        quiet = 0
        for _ in range(MOST_LOOKS):
            quiet = 0 if self.end_once(group=False) else quiet + 1
            if quiet == 2:
                return True
            await anyio.sleep(LOOK_S)
        log.error("processes of %s cannot be ended: %s", self.tag, self.members())
        return False

    def send(self, pid: int, number: int) -> None:
        with suppress(ProcessLookupError, PermissionError):
            self.kill(pid, number)
