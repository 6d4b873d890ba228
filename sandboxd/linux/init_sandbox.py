"""The daemon's side of a sandbox whose init is up: commands go in, exact reports come out.

It hides the sockets and their messages. The init is treated as hostile: anything that it could not
honestly say ends the sandbox.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable

import anyio

from sandboxd.linux import init_wire as wire
from sandboxd.linux import packets
from sandboxd.linux.evidence import EvidenceLog
from sandboxd.linux.exec_failure import exec_failed
from sandboxd.linux.filters import filter_descriptor
from sandboxd.linux.rlimits import rlimits
from sandboxd.linux.seccomp import FilterSpec
from sandboxd.linux.terminal import Terminal
from sandboxd.sandbox import Command, ExitReport, LimitName, PtyRequest, Stdio, TreeUsage
from sandboxd_proto.errors import ExecFailed, SandboxUnavailable

FilterFor = Callable[[Command], FilterSpec]
_LIMITS: dict[wire.LimitKind, LimitName] = {
    wire.LimitKind.MEMORY: "memory",
    wire.LimitKind.CPU: "cpu",
    wire.LimitKind.PROCESSES: "processes",
}


class SetupRefused(Exception):
    """The init never became ready. Empty: it ended (or was never reached) without a word."""


class InitSandbox:
    """Speaks with one init. Whoever started the init owns its process and closes `control`."""

    def __init__(
        self, control: socket.socket, *, filter_for: FilterFor, root: bool,
        verify: Callable[[], bool],
    ) -> None:  # fmt: skip
        self._control = control
        self._filter_for = filter_for
        self._root = root
        self._verify = verify
        self.lost: str | None = None

    async def set_up(self, setup: wire.Setup, ruleset: int | None) -> None:
        """Until the init is ready. SetupRefused says what it could not do."""
        await packets.send(self._control, setup, () if ruleset is None else (ruleset,))
        data = await packets.receive(self._control)
        if not data:
            raise SetupRefused("")
        match wire.decode_control(data):
            case wire.Ready():
                return
            case wire.SetupFailed(stage, number, detail):
                reason = f"{stage.name.lower()}: {detail or os.strerror(number)}"
                raise SetupRefused(f"the init could not set the sandbox up ({reason})")
            case other:
                raise wire.InitLied(f"{other} instead of ready")

    @property
    def alive(self) -> bool:
        """A waiting init says nothing: anything to read means that it is gone or lost."""
        try:
            self._control.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            pass
        return False

    def verify(self) -> bool:
        return self.alive and self._verify()

    def last_words(self) -> str | None:
        """Why the sandbox ended, if the init said so."""
        while self.lost is None:
            try:
                data = self._control.recv(wire.MESSAGE_MAX)
                if not data:
                    break
                match wire.decode_control(data):
                    case wire.IsolationLost(what):
                        self.lost = f"the mount at {what} changed under the running command"
                    case wire.ProtocolError(reason):
                        self.lost = f"the init refused a message: {reason}"
            except wire.InitLied as error:
                self.lost = f"the sandbox's init was tampered with: {error}"
            except ConnectionResetError:
                continue  # comes once, before the words (packets.receive)
            except OSError:
                break
        return self.lost

    async def spawn(
        self, command: Command, stdio: Stdio | None, terminal: Terminal | None = None, *,
        cgroup: int | None = None,
    ) -> InitProcess:  # fmt: skip
        """`terminal`: for a pty that is not to be opened inside; its master becomes the process's.

        `cgroup`: where to write in order to enter the command's cgroup.
        """
        spec = self._filter_for(command)
        program = filter_descriptor(spec)
        ours, theirs = packets.pair()
        try:
            descriptors = [theirs.fileno()]
            if program is not None:
                descriptors.append(program)
            if cgroup is not None:
                descriptors.append(cgroup)
            if terminal is not None:
                descriptors.append(terminal.slave)
            elif stdio is not None:
                descriptors += [stdio.stdin, stdio.stdout, stdio.stderr]
            request = exec_request(
                command, has_filter=program is not None, has_terminal=terminal is not None,
                has_cgroup=cgroup is not None, root=self._root,
            )  # fmt: skip
            await packets.send(self._control, request, descriptors)
            theirs.close()
            process = InitProcess(ours, self, filter_loaded=program is not None)
            await process.started(command, terminal)
        except OSError as error:
            ours.close()
            reason = self.last_words() or os.strerror(error.errno or 0)
            raise SandboxUnavailable(f"the sandbox ended before the command: {reason}") from None
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        return process


def exec_request(
    command: Command, *, has_filter: bool, has_terminal: bool, has_cgroup: bool, root: bool
) -> wire.Exec:
    flags = wire.ExecFlag(0)
    if command.pty:
        flags |= wire.ExecFlag.PTY
    if has_filter:
        flags |= wire.ExecFlag.HAS_FILTER
    if has_cgroup:
        flags |= wire.ExecFlag.HAS_CGROUP
    if has_terminal:
        flags |= wire.ExecFlag.HAS_TERMINAL
    if command.keep_background:
        flags |= wire.ExecFlag.KEEP_BACKGROUND
    if command.explain:
        flags |= wire.ExecFlag.EXPLAIN
    limits, pty = command.limits, command.pty or PtyRequest(0, 0)
    try:
        return wire.Exec(
            argv=command.argv, env=command.env, cwd=command.cwd, flags=flags,
            rows=pty.rows, columns=pty.cols, rlimits=rlimits(limits, root=root),
            tree_memory_bytes=limits.memory_bytes or 0,
            tree_cpu_us=int((limits.cpu_s or 0) * 1e6),
            tree_processes=limits.processes or 0,
        )  # fmt: skip
    except ValueError as error:
        raise ExecFailed(str(error)) from None


class InitProcess:
    """One command, through the channel to its keeper."""

    def __init__(
        self, channel: socket.socket, sandbox: InitSandbox, *, filter_loaded: bool
    ) -> None:
        self._channel = channel
        self._sandbox = sandbox
        self.filter_loaded = filter_loaded
        self.pty: int | None = None
        self._limit: LimitName | None = None
        self._exited: wire.Exited | None = None
        self._gone: wire.Usage | None = None
        self._evidence = EvidenceLog()

    async def started(self, command: Command, terminal: Terminal | None = None) -> None:
        self._evidence.explained = command.explain
        inside = command.pty is not None and terminal is None
        # The keeper tells that it started, the init what it does already.
        while self._evidence.take(message := await self._first(terminal_wanted=inside)):
            pass
        match message:
            case wire.Started():
                if terminal is not None:
                    self._take_master(terminal.take_master(), wanted=True)
                if command.pty is not None and self.pty is None:
                    raise wire.InitLied("no terminal came with the command")
            case wire.ExecFailed(stage, number, path):
                raise exec_failed(command, stage, number, path)
            case other:
                raise wire.InitLied(f"{other} instead of started")

    async def _first(self, *, terminal_wanted: bool) -> wire.Channel:
        data, master = await packets.receive_with_descriptor(self._channel)
        if master is not None:
            self._take_master(master, wanted=terminal_wanted)
        if not data:
            raise self._vanished()
        return wire.decode_channel(data)

    def _take_master(self, master: int, *, wanted: bool) -> None:
        """Only a terminal is taken from inside: anything else could block or mislead the daemon."""
        if not wanted or not os.isatty(master):
            os.close(master)
            raise wire.InitLied("a descriptor that nobody asked for")
        os.set_blocking(master, False)
        self.pty = master

    def _vanished(self) -> SandboxUnavailable:
        reason = self._sandbox.last_words() or "its init is gone"
        return SandboxUnavailable(
            f"the sandbox ended before the command ran: {reason}", remedy="send the request again"
        )

    async def wait(self, *, tree: bool = True) -> ExitReport:
        """Can be cancelled and called again: nothing that was received is lost."""
        while self._gone is None:
            data = await packets.receive(self._channel)
            if not data:
                return self._report(_NO_USAGE, lost=True)
            try:
                message = wire.decode_channel(data)
            except wire.InitLied as error:
                self._sandbox.lost = f"the sandbox's init was tampered with: {error}"
                return self._report(_NO_USAGE, lost=True)
            match message:
                case wire.Limit(kind):
                    self._limit = _LIMITS[kind]
                case wire.Exited() as exited:
                    self._exited = exited
                    if not tree:
                        return self._report(exited.usage)
                case wire.Gone(usage):
                    self._gone = usage
                case other:
                    self._evidence.take(other)
        return self._report(self._gone)

    def _report(self, usage: wire.Usage, *, lost: bool = False) -> ExitReport:
        why = None
        if lost:
            why = self._sandbox.last_words()
            if why is None and self._exited is None:
                why = "the sandbox ended under the command"
        exited = self._exited
        used = usage if usage is not _NO_USAGE or exited is None else exited.usage
        return ExitReport(
            exit_code=exited.code if exited else None,
            signal=exited.signal if exited else None,
            usage=TreeUsage((used.user_us + used.system_us) / 1000, used.maxrss_bytes),
            limit=self._limit,
            lost=why,
            evidence=self._evidence.so_far(),
        )

    def signal(self, number: int, *, whole_tree: bool = False) -> None:
        scope = wire.SignalScope.TREE if whole_tree else wire.SignalScope.MAIN
        packets.send_now(self._channel, wire.Signal(number=number, scope=scope))

    def kill(self) -> None:
        packets.send_now(self._channel, wire.Kill())

    def close(self) -> None:
        if self.pty is not None:
            anyio.notify_closing(self.pty)
            os.close(self.pty)
            self.pty = None
        self._channel.close()


_NO_USAGE = wire.Usage(0, 0, 0)
