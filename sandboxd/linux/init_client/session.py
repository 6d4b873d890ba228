"""The daemon's side of a sandbox whose init is up: starts commands, receives reports.

The init is treated as hostile: a protocol violation ends the sandbox.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from functools import cache
from itertools import compress
from typing import Protocol

import anyio

from sandboxd.linux.init_client import codec, seqpacket
from sandboxd.linux.init_client import messages as wire
from sandboxd.linux.init_client.process import InitProcess
from sandboxd.linux.init_client.rlimits import ProcessCount, rlimits
from sandboxd.linux.pty import Terminal
from sandboxd.linux.seccomp import FilterSpec
from sandboxd.linux.seccomp.filters import filter_descriptor
from sandboxd.types import TERM_GRACE_S, Command, PtyRequest, Stdio
from sandboxd_proto.errors import ExecFailed, SandboxUnavailable

_FLAGS = tuple(
    flag.value  # plain numbers: the arithmetic of enums is slow, and this is every command's path
    for flag in (
        wire.ExecFlag.PTY, wire.ExecFlag.HAS_FILTER, wire.ExecFlag.KEEP_BACKGROUND,
        wire.ExecFlag.HAS_CGROUP, wire.ExecFlag.HAS_TERMINAL, wire.ExecFlag.EXPLAIN,
        wire.ExecFlag.FILES, wire.ExecFlag.NO_ECHO, wire.ExecFlag.HAS_STDERR,
    )
)  # fmt: skip
MOST_LAST_WORDS = 64
FilterFor = Callable[[Command], FilterSpec]


@cache
def _setup_flags(prefork: bool, has_cgroup: bool) -> wire.SetupFlag:
    flag = wire.SetupFlag
    return (flag.PREFORK if prefork else flag(0)) | (flag.HAS_CGROUP if has_cgroup else flag(0))


class SetupRefused(Exception):
    """The init did not become ready. An empty text: it ended or was never reached.

    `path`: where it found another mount or file than the planned one.
    """

    def __init__(self, said: str, path: str | None = None, number: int = 0) -> None:
        super().__init__(said)
        self.path = path
        self.errno = number


class TopProcess(Protocol):
    def kill(self) -> None: ...
    def is_dead(self) -> bool: ...


class InitSandbox:
    """The connection to one init. The caller owns the init's process and closes `control`."""

    def __init__(
        self, control: socket.socket, *, filter_for: FilterFor, counts: ProcessCount,
        verify: Callable[[], bool], owner: TopProcess | None = None,
    ) -> None:  # fmt: skip
        """`owner`: the process that everything in the sandbox ends with, where there is one."""
        self._control = control
        self.owner = owner
        self._filter_for = filter_for
        self._counts = counts
        self._verify = verify
        self.lost: str | None = None

    async def set_up(
        self, setup: wire.Setup, ruleset: int | None, *, prefork: bool = True,
        cgroup: int | None = None,
    ) -> None:  # fmt: skip
        """Set the sandbox up. SetupRefused says what the init could not do.

        `prefork`: whether a process for the next command may wait; not where processes are counted.
        `cgroup`: where to write in order to enter the sandbox's cgroup.
        """
        flags = _setup_flags(prefork, cgroup is not None)
        descriptors = [fd for fd in (ruleset, cgroup) if fd is not None]
        await seqpacket.send(self._control, setup.with_flags(flags), descriptors)
        data = await seqpacket.receive(self._control)
        if not data:
            raise SetupRefused("")
        match codec.decode_control(data):
            case wire.Ready():
                return
            case wire.SetupFailed(stage, number, detail):
                reason = f"{stage.name.lower()}: {detail or os.strerror(number)}"
                moved = detail if stage is wire.SetupStage.CHECK else None
                said = f"the init could not set the sandbox up ({reason})"
                raise SetupRefused(said, moved, number)
            case other:
                raise codec.InitProtocolViolation(f"{other} instead of ready")

    @property
    def alive(self) -> bool:
        """An idle init sends nothing: a readable socket means that it ended or lost isolation."""
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
        for _ in range(MOST_LAST_WORDS):  # bounded: an init that keeps sending is ignored
            if self.lost is not None:
                break
            try:
                data = self._control.recv(codec.MESSAGE_MAX)
                if not data:
                    break
                match codec.decode_control(data):
                    case wire.IsolationLost() as lost:
                        self.lost = lost.reason
                    case wire.ProtocolError(reason):
                        self.lost = f"the init refused a message: {reason}"
            except codec.InitProtocolViolation as error:
                self.lost = f"the sandbox's init was tampered with: {error}"
            except ConnectionResetError:
                continue  # comes once, before queued messages (seqpacket.receive)
            except OSError:
                break
        return self.lost

    async def spawn(
        self, command: Command, stdio: Stdio | None, terminal: Terminal | None = None, *,
        cgroup: int | None = None,
    ) -> InitProcess:  # fmt: skip
        while True:
            process = self.spawn_now(command, stdio, terminal, cgroup=cgroup)
            if process is not None:
                return process
            await anyio.wait_writable(self._control)

    def spawn_now(
        self, command: Command, stdio: Stdio | None, terminal: Terminal | None = None, *,
        cgroup: int | None = None,
    ) -> InitProcess | None:  # fmt: skip
        """`terminal`: for a pty that is not to be opened inside; its master becomes the process's.

        `cgroup`: where to write in order to enter the command's cgroup.
        """
        spec = self._filter_for(command)
        program = filter_descriptor(spec)
        ours, theirs = seqpacket.pair()
        try:
            descriptors = [theirs.fileno()]
            if program is not None:
                descriptors.append(program)
            if cgroup is not None:
                descriptors.append(cgroup)
            if terminal is not None:
                descriptors.append(terminal.slave)
            if stdio is not None and command.pty is None:
                descriptors += [stdio.stdin, stdio.stdout, stdio.stderr]
            elif stdio is not None:
                descriptors.append(stdio.stderr)
            request = exec_request(
                command, has_filter=program is not None, has_terminal=terminal is not None,
                has_cgroup=cgroup is not None, counts=self._counts,
            )  # fmt: skip
            seqpacket.send_at_once(self._control, request, descriptors)
        except BlockingIOError:
            ours.close()
            return None
        except OSError as error:
            ours.close()
            reason = self.last_words() or os.strerror(error.errno or 0)
            raise SandboxUnavailable(
                f"the sandbox ended before the command ran: {reason}",
                remedy="send the request again",
            ) from None
        except ValueError as error:  # the init would refuse the message
            ours.close()
            raise ExecFailed(str(error)) from None
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        return InitProcess(
            ours, self, command, filter_loaded=program is not None, terminal=terminal
        )


# The daemon sends SIGTERM at the timeout and kills the tree TERM_GRACE_S later; the reaper inside
# does it by itself when the daemon has not done so by then.
LATE_S = 1.5
MOST_S = 1e12


def _wall_ms(timeout_s: float | None) -> int:
    """0 is no limit. A session's budget may be longer than the message can say."""
    return 0 if timeout_s is None else int(min(timeout_s + TERM_GRACE_S + LATE_S, MOST_S) * 1000)


def exec_request(
    command: Command, *, has_filter: bool, has_terminal: bool, has_cgroup: bool,
    counts: ProcessCount,
) -> wire.Exec:  # fmt: skip
    said = (
        command.pty is not None, has_filter, command.keep_background, has_cgroup, has_terminal,
        command.explain, command.files,
        command.pty is not None and not command.pty.echo,
        command.pty is not None and command.pty.stderr_apart,
    )  # fmt: skip
    flags = sum(compress(_FLAGS, said))
    limits, pty = command.limits, command.pty or PtyRequest(0, 0)
    return wire.Exec(
        argv=command.argv, env=command.env, cwd=command.cwd, flags=flags,
        rows=pty.rows, columns=pty.cols,
        rlimits=rlimits(limits, counts, shared=command.keep_background),
        tree_memory_bytes=limits.memory_bytes or 0,
        tree_cpu_us=int((limits.cpu_s or 0) * 1e6),
        tree_processes=limits.process_bound or 0,
        wall_ms=_wall_ms(command.timeout_s),
    )  # fmt: skip
