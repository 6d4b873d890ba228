"""One command below an init: handles the messages of its reaper as they arrive.

The event loop's callback handles every message, so a task is woken only for the event that it waits
for. A short command costs one wake-up, and messages of a hostile reaper are not queued.
"""

from __future__ import annotations

import os
import signal
import socket
from enum import IntEnum
from typing import TYPE_CHECKING

import anyio
from msgspec.structs import replace

from sandboxd import event_loop
from sandboxd.linux.init_client import codec, seqpacket
from sandboxd.linux.init_client import messages as wire
from sandboxd.linux.init_client.evidence import EvidenceLog
from sandboxd.linux.init_client.exec_errors import exec_failed
from sandboxd.linux.pty import Terminal
from sandboxd.policy.display_names import escape_controls
from sandboxd.types import (
    NO_EVIDENCE,
    Command,
    Evidence,
    ExitReport,
    LimitName,
    TreeUsage,
)
from sandboxd_proto.errors import SandboxUnavailable
from sandboxd_proto.messages.execute import LeftProcesses

if TYPE_CHECKING:
    from sandboxd.linux.init_client.session import InitSandbox

_LIMITS: dict[wire.LimitKind, LimitName] = {
    wire.LimitKind.MEMORY: "memory",
    wire.LimitKind.CPU: "cpu",
    wire.LimitKind.PROCESSES: "processes",
    wire.LimitKind.TIMEOUT: "timeout",
}
ALL_EXPLAINED = Evidence(explained=True)  # and nothing was refused
_NO_USAGE = wire.TreeRusage(0, 0, 0)
MOST_EARLY = 63
# The init ends a tree in milliseconds. Where a command keeps it from that, the sandbox is killed.
KILL_SANDBOX_S = 2.0
DEAD_S = 5.0


class Stage(IntEnum):
    """The state of a command. `OVER`: no more messages follow."""

    SENT = 0
    STARTED = 1
    EXITED = 2
    OVER = 3


class InitProcess:
    """`terminal`: the process owns its master once the command has started."""

    def __init__(
        self, channel: socket.socket, sandbox: InitSandbox, command: Command, *,
        filter_loaded: bool, terminal: Terminal | None = None,
    ) -> None:  # fmt: skip
        self._channel = channel
        self._sandbox = sandbox
        self._command = command
        self._terminal = terminal
        self.filter_loaded = filter_loaded
        self.pty: int | None = None
        self._stage = Stage.SENT
        self._refused: Exception | None = None
        self._failed: wire.ExecFailedMessage | None = None
        self._killed_early = False
        self._limit: LimitName | None = None
        self._exited: wire.ExitedMessage | None = None
        self._gone: wire.TreeRusage | None = None
        self._left: LeftProcesses | None = None
        self._evidence: EvidenceLog | None = None  # made for the first message that is one
        self._waiter: event_loop.WakeUp | None = None
        self._waits_for = Stage.OVER
        self._early_signals: list[wire.Signal] = []
        self._last_resort: event_loop.Timer | None = None
        self._sandbox_killed = False
        self._fd = channel.fileno()
        event_loop.add_reader(self._fd, self._read)

    # incoming messages

    def _read(self) -> None:
        self._read_messages()
        if self._waiter is not None and self._stage >= self._waits_for:
            self._waiter.set()
        if self._stage is Stage.OVER:  # after the answer was sent
            self._stop_reading()

    def _read_messages(self) -> None:
        before = self._stage
        try:
            if before is Stage.SENT:
                message = seqpacket.take_with_descriptor(self._channel)
            else:
                message = self._channel.recv(codec.MESSAGE_MAX), None
        except (BlockingIOError, ConnectionResetError):
            return  # a reset comes once, before queued messages (seqpacket.receive)
        except OSError as error:
            self._distrust(error)
            return
        try:
            self._take(*message)
        except Exception as error:
            self._distrust(error)
        if before < self._stage < Stage.OVER:
            self._read_messages()  # start, exit and end of a short command are reported together

    def _take(self, data: bytes, descriptor: int | None) -> None:
        if descriptor is not None:
            wanted = self._command.pty is not None and self._terminal is None
            self._take_master(descriptor, wanted=wanted)
        if not data:
            if self._stage is Stage.SENT and not self._sandbox_killed:
                self._refused = self._vanished()
            self._reach(Stage.OVER)
            return
        message = codec.decode_channel(data)
        if self._stage is Stage.SENT:
            self._take_first(message)
            return
        match message:
            case wire.ExitedMessage() as exited:
                self._exited = exited
                self._reach(Stage.EXITED)
            case wire.Gone(usage):
                if self._exited is None:
                    raise codec.InitProtocolViolation("the end of a tree without an exit")
                self._gone = usage
                self._reach(Stage.OVER)
            case wire.Limit(kind):
                self._limit = _LIMITS[kind]
            case wire.LeftMessage(count, names):
                self._left = LeftProcesses(count=count, names=[*map(escape_controls, names)])
            case other:
                self._take_evidence(other)

    def _take_first(self, message: wire.Channel) -> None:
        match message:
            case wire.StartedMessage():
                if self._terminal is not None:
                    self._take_master(self._terminal.take_master(), wanted=True)
                if self._command.pty is not None and self.pty is None:
                    raise codec.InitProtocolViolation("no terminal came with the command")
                self._reach(Stage.STARTED)
            case wire.ExecFailedMessage() as failed:
                self._failed = failed
                self._reach(Stage.OVER)
            case other:
                # STARTED comes from the reaper; evidence from the init may arrive first.
                if not self._take_evidence(other):
                    raise codec.InitProtocolViolation(f"{other} instead of started")

    def _take_evidence(self, message: wire.Channel) -> bool:
        """False if it is none."""
        if self._evidence is None:
            command = self._command
            self._evidence = EvidenceLog(explained=command.explain, attempted=command.attempted)
        return self._evidence.take(message)

    def _evidence_so_far(self) -> Evidence:
        if self._evidence is not None:
            return self._evidence.so_far()
        return ALL_EXPLAINED if self._command.explain else NO_EVIDENCE

    def _take_master(self, master: int, *, wanted: bool) -> None:
        """Only a terminal is accepted from inside: other descriptors could block the daemon."""
        if not wanted or self.pty is not None or not os.isatty(master):
            os.close(master)
            raise codec.InitProtocolViolation("an unexpected descriptor")
        os.set_blocking(master, False)
        self.pty = master

    def _distrust(self, error: Exception) -> None:
        self._sandbox.lost = f"the sandbox's init was tampered with: {error}"
        if self._stage is Stage.SENT:
            self._refused = self._vanished()
        self._reach(Stage.OVER)

    def _vanished(self) -> SandboxUnavailable:
        reason = self._sandbox.last_words() or "its init is gone"
        # STARTED is sent some milliseconds after the exec.
        return SandboxUnavailable(
            f"the sandbox ended while the command was started: {reason}",
            remedy="see whether the command has done something, and send the request again",
        )

    # waiting

    def _reach(self, stage: Stage) -> None:
        self._stage = stage
        while self._early_signals:
            seqpacket.send_now(self._channel, self._early_signals.pop(0))

    async def _until(self, stage: Stage) -> None:
        """One task at a time."""
        while self._stage < stage:
            self._waits_for = stage
            self._waiter = event_loop.WakeUp()
            try:
                await self._waiter
            finally:
                self._waiter = None

    async def started(self) -> None:
        await self._until(Stage.STARTED)
        await self._raise_refusal()

    async def wait(self, *, tree: bool = True) -> ExitReport:
        """Can be cancelled and called again: nothing that was received is lost."""
        await self._until(Stage.OVER if tree else Stage.EXITED)
        if self._failed is not None or self._refused is not None:
            await self._raise_refusal()
        if self._gone is not None:
            return self._report(self._gone)
        if self._stage is Stage.EXITED and self._exited is not None:
            return self._report(self._exited.usage)
        if self._failed is not None:
            return replace(self._report(_NO_USAGE), signal=signal.SIGKILL)
        await self._until_sandbox_is_dead()
        if self._sandbox_killed:
            return replace(self._report(_NO_USAGE), signal=signal.SIGKILL)
        return self._report(_NO_USAGE, lost=True)

    async def _until_sandbox_is_dead(self) -> None:
        """The init is gone, or said something wrong: the kernel ends what is left with it."""
        owner = self._sandbox.owner
        if owner is None:
            return
        owner.kill()
        await event_loop.enter_task()
        with event_loop.Deadline(DEAD_S):
            while not owner.is_dead():  # noqa: ASYNC110 - its pidfd has another reader
                await anyio.sleep(0.005)

    async def _raise_refusal(self) -> None:
        """Why nothing ran. Explaining a failed exec reads files of the host.

        The start of a command that was killed before its exec fails because of that: by a fork that
        its cgroup refuses, or by a child that dies. It has ended by SIGKILL, then.
        """
        failed = self._failed
        if failed is not None and self._refused is None and not self._killed_early:
            await event_loop.enter_task()  # a thread explains it
            self._refused = await exec_failed(
                self._command, failed.stage, failed.errno, failed.path
            )
        if self._refused is not None:
            raise self._refused

    def _report(self, usage: wire.TreeRusage, *, lost: bool = False) -> ExitReport:
        why = None
        if lost:
            why = self._sandbox.last_words()
            if why is None and self._exited is None:
                why = "the sandbox ended while the command ran"
        exited = self._exited
        used = usage if usage is not _NO_USAGE or exited is None else exited.usage
        return ExitReport(
            exit_code=exited.code if exited else None,
            signal=exited.signal if exited else None,
            usage=TreeUsage((used.user_us + used.system_us) / 1000, used.maxrss_bytes),
            limit=self._limit,
            lost=why,
            evidence=self._evidence_so_far(),
            whole=self._gone is not None,
            left=self._left,
        )

    # control

    def signal(self, number: int, *, whole_tree: bool = False) -> None:
        """Held back until the exec: before, it would hit the forked child."""
        scope = wire.SignalScope.TREE if whole_tree else wire.SignalScope.MAIN
        request = wire.Signal(number=number, scope=scope)
        if self._stage is Stage.SENT:
            self._early_signals[MOST_EARLY:] = []
            self._early_signals.append(request)
        else:
            seqpacket.send_now(self._channel, request)

    def kill(self) -> None:
        self._killed_early = self._killed_early or self._stage is Stage.SENT
        seqpacket.send_now(self._channel, wire.Kill())
        if self._last_resort is None and self._sandbox.owner is not None:
            self._last_resort = event_loop.call_later(KILL_SANDBOX_S, self._kill_sandbox)

    def _kill_sandbox(self) -> None:
        if self._stage is not Stage.OVER and self._sandbox.owner is not None:
            self._sandbox_killed = True
            self._sandbox.owner.kill()

    def _stop_reading(self) -> None:
        if self._fd >= 0:
            event_loop.remove_reader(self._fd)
            self._fd = -1

    def close(self) -> None:
        self._stop_reading()
        if self._last_resort is not None:
            self._last_resort.cancel()
        if self.pty is not None:
            anyio.notify_closing(self.pty)
            os.close(self.pty)
            self.pty = None
        self._channel.close()
