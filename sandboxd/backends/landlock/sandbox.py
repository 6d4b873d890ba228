"""A sandbox without mounts: does before and after each command what mounts do elsewhere.

A folder of its own stands for /tmp, a terminal of the daemon's for a private /dev/pts, and what is
protected in the workspace is noted before a command and put right after it.
"""

from __future__ import annotations

from msgspec.structs import replace

from sandboxd.backends.landlock.masked import MaskedFiles
from sandboxd.backends.landlock.protected_files import ProtectedFiles
from sandboxd.linux.cgroup.limited_sandbox import Spawner
from sandboxd.linux.pty import Terminal, open_terminal
from sandboxd.policy.plan import RunAs
from sandboxd.types import Command, ExitReport, Process, Stdio
from sandboxd.wrappers import WrappedProcess, WrappedSandbox
from sandboxd_proto.errors import Busy, ExecFailed


class LandlockSandbox(WrappedSandbox[Spawner]):
    """`terminal` is the one whose slave the ruleset knows; the first command with a pty gets it."""

    def __init__(
        self, inner: Spawner, *, folder: str, terminal: Terminal, run_as: RunAs | None,
        protected: ProtectedFiles, masked: MaskedFiles,
    ) -> None:  # fmt: skip
        super().__init__(inner)
        self._folder = folder
        self._terminal: Terminal | None = terminal
        self._run_as = run_as
        self._protected = protected
        self._masked = masked

    @property
    def alive(self) -> bool:
        return self._inner.alive and not self._protected.violated

    def last_words(self) -> str | None:
        changed = "a protected file was changed" if self._protected.violated else None
        return changed or super().last_words()

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
        if command.keep_background:
            self._protected.watch()
        return LandlockProcess(process, self._protected, self._masked)

    async def spawn(self, command: Command, stdio: Stdio | None) -> LandlockProcess:
        command = self._told(command)
        self._protected.begin()
        try:
            if command.pty is None:
                process = await self._inner.spawn(command, stdio)
            else:
                process = await self._with_terminal(command, stdio)
        except BaseException:
            self._protected.end(all_gone=True)
            raise
        if command.keep_background:
            self._protected.watch()
        return LandlockProcess(process, self._protected, self._masked)

    def _told(self, command: Command) -> Command:
        return replace(command, env=_with_folder(command.env, self._folder))

    async def _with_terminal(self, command: Command, stdio: Stdio | None) -> Process:
        assert command.pty is not None
        terminal, self._terminal = self._terminal or open_terminal(self._run_as), None
        try:
            terminal.prepare(command.pty)
            process = await self._inner.spawn(command, stdio, terminal)
            try:
                await process.started()  # it takes the terminal's master
            except BaseException:
                process.close()
                raise
            return process
        finally:
            terminal.close()


class LandlockProcess(WrappedProcess):
    def __init__(self, inner: Process, protected: ProtectedFiles, masked: MaskedFiles) -> None:
        super().__init__(inner)
        self._protected = protected
        self._masked = masked
        self._changed: tuple[tuple[str, str | None], ...] = ()
        self._gone = False
        protected.started(inner.kill)

    async def started(self) -> None:
        try:
            await self._inner.started()
        except (ExecFailed, Busy):
            self._gone = True
            raise

    async def wait(self, *, tree: bool = True) -> ExitReport:
        await self.started()
        report = await self._inner.wait(tree=tree)
        self._gone = tree
        self._changed += await self._protected.put_right()
        exposed = self._masked.exposed()
        lost = report.lost or (exposed and f"{exposed} was replaced by a file that is readable")
        return replace(report, protected=self._changed, lost=lost)

    def close(self) -> None:
        self._protected.ended(self._inner.kill)
        self._inner.close()
        self._protected.end(all_gone=self._gone)


def _with_folder(env: tuple[tuple[str, str], ...], folder: str) -> tuple[tuple[str, str], ...]:
    """TMPDIR, and a HOME that is /tmp, lead to the folder: /tmp is the host's, and closed. A
    caller's own one stays."""
    shared = ("/tmp", "/var/tmp")
    given = dict(env)
    if given.get("TMPDIR", "").rstrip("/") in ("", *shared):
        given["TMPDIR"] = folder
    if given.get("HOME", "").rstrip("/") in shared:
        given["HOME"] = folder
    return tuple(given.items())
