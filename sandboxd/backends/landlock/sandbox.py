"""A sandbox without mounts: what a mount does elsewhere is done here around each command.

A folder of its own stands for /tmp, a terminal of the daemon's for a private /dev/pts, and what is
protected in the workspace is noted before a command and put right after it.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from sandboxd.linux.limited import Spawner
from sandboxd.linux.protected_snapshot import ProtectedSnapshot
from sandboxd.linux.terminal import Terminal, open_terminal
from sandboxd.policy.plan import Protected, RunAs
from sandboxd.sandbox import Command, ExitReport, Process, Stdio
from sandboxd_proto.errors import ExecFailed

log = logging.getLogger(__name__)


class ProtectedFiles:
    """Keeps the protected files of one sandbox while commands of it run.

    Noted when the first command starts, not when the sandbox is made: what the user changes while
    nothing runs is theirs.
    """

    def __init__(self, protected: tuple[Protected, ...]) -> None:
        self._protected = protected
        self._noted: ProtectedSnapshot | None = None
        self._running = 0

    def begin(self) -> None:
        if self._noted is None and self._protected:
            self._noted = ProtectedSnapshot(self._protected)
            for path in self._noted.unverified:
                log.warning("%s is too large to be checked after the command", path)
        self._running += 1

    def put_right(self) -> tuple[tuple[str, str | None], ...]:
        """What had been changed: (path, where the changed version is now)."""
        if self._noted is None:
            return ()
        changed = self._noted.verify()
        for one in changed:
            log.warning("a command changed %s, which is protected", one.path)
        return tuple((one.path, one.moved_to) for one in changed)

    def end(self, *, all_gone: bool) -> None:
        """Called for each `begin`. Without `all_gone` something may still run."""
        self._running -= 1
        if self._running == 0 and all_gone:
            self.close()

    def close(self) -> None:
        if self._noted is not None:
            self.put_right()
            self._noted.close()
            self._noted = None


class LandlockSandbox:
    """`terminal` is the one whose slave the ruleset knows; the first command with a pty gets it."""

    def __init__(
        self, inner: Spawner, *, folder: str, terminal: Terminal, run_as: RunAs | None,
        protected: ProtectedFiles,
    ) -> None:  # fmt: skip
        self._inner = inner
        self._folder = folder
        self._terminal: Terminal | None = terminal
        self._run_as = run_as
        self._protected = protected

    @property
    def alive(self) -> bool:
        return self._inner.alive

    def verify(self) -> bool:
        return self._inner.verify()

    def spawn_now(self, command: Command, stdio: Stdio | None) -> Process | None:
        if command.pty is not None:
            return None
        self._protected.begin()
        try:
            process = self._inner.spawn_now(self._told(command), stdio)
        except BaseException:
            self._protected.end(all_gone=True)
            raise
        if process is None:
            self._protected.end(all_gone=True)
            return None
        return LandlockProcess(process, self._protected)

    async def spawn(self, command: Command, stdio: Stdio | None) -> LandlockProcess:
        command = self._told(command)
        self._protected.begin()
        try:
            if command.pty is None:
                process = await self._inner.spawn(command, stdio)
            else:
                process = await self._with_terminal(command)
        except BaseException:
            self._protected.end(all_gone=True)
            raise
        return LandlockProcess(process, self._protected)

    def _told(self, command: Command) -> Command:
        return replace(command, env=_with_folder(command.env, self._folder))

    async def _with_terminal(self, command: Command) -> Process:
        assert command.pty is not None
        terminal, self._terminal = self._terminal or open_terminal(self._run_as), None
        try:
            terminal.resize(command.pty)
            process = await self._inner.spawn(command, None, terminal)
            try:
                await process.started()  # it takes the terminal's master
            except BaseException:
                process.close()
                raise
            return process
        finally:
            terminal.close()

    def close(self) -> None:
        """When everything in it is dead."""
        if self._terminal is not None:
            self._terminal.close()
        self._protected.close()


class LandlockProcess:
    def __init__(self, inner: Process, protected: ProtectedFiles) -> None:
        self._inner = inner
        self._protected = protected
        self._changed: tuple[tuple[str, str | None], ...] = ()
        self._gone = False
        self.signal = inner.signal
        self.kill = inner.kill

    @property
    def pty(self) -> int | None:
        return self._inner.pty

    @property
    def filter_loaded(self) -> bool:
        return self._inner.filter_loaded

    async def started(self) -> None:
        try:
            await self._inner.started()
        except ExecFailed:
            self._gone = True
            raise

    async def wait(self, *, tree: bool = True) -> ExitReport:
        await self.started()
        report = await self._inner.wait(tree=tree)
        self._gone = tree
        self._changed += self._protected.put_right()
        return replace(report, protected=self._changed)

    def close(self) -> None:
        self._inner.close()
        self._protected.end(all_gone=self._gone)


def _with_folder(
    env: tuple[tuple[str, str], ...], folder: str
) -> tuple[tuple[str, str], ...]:
    """TMPDIR leads to the folder: /tmp is the host's, and closed. A caller's own one stays."""
    shared = ("", "/tmp", "/var/tmp")
    given = dict(env)
    if given.get("TMPDIR", "").rstrip("/") not in shared:
        return env
    return tuple({**given, "TMPDIR": folder}.items())
