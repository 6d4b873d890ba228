"""The daemon's side of a sandbox whose init is up: commands go in, exact reports come out.

It hides the sockets and their messages. The init is treated as hostile: anything that it could not
honestly say ends the sandbox.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from dataclasses import replace

import anyio

from sandboxd.linux import init_wire as wire
from sandboxd.linux import packets
from sandboxd.linux.filters import filter_descriptor
from sandboxd.linux.init_process import InitProcess
from sandboxd.linux.rlimits import rlimits
from sandboxd.linux.seccomp import FilterSpec
from sandboxd.linux.terminal import Terminal
from sandboxd.policy.plan import Limits
from sandboxd.sandbox import Command, PtyRequest, Stdio
from sandboxd_proto.errors import ExecFailed, SandboxUnavailable
from sandboxd_proto.manifest import SyscallPolicy

_FLAGS = tuple(
    flag.value  # plain numbers: the arithmetic of enums is slow, and this is every command's path
    for flag in (
        wire.ExecFlag.PTY, wire.ExecFlag.HAS_FILTER, wire.ExecFlag.KEEP_BACKGROUND,
        wire.ExecFlag.HAS_CGROUP, wire.ExecFlag.HAS_TERMINAL, wire.ExecFlag.EXPLAIN,
        wire.ExecFlag.FILTER_AHEAD,
    )
)  # fmt: skip
FilterFor = Callable[[Command], FilterSpec]


_USUAL = Command(argv=("/",), env=(), cwd="/", limits=Limits(), syscall_policy="baseline")


# By what a sandbox filters at the baseline: the policy that its last command asked for.
_last_policy: dict[FilterSpec, SyscallPolicy] = {}


def _loads_ahead(command: Command) -> bool:
    """With the filter loaded a child must get as far as its exec; an allowlist would not let it."""
    return command.syscall_policy != "strict"


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
        self._kind = filter_for(_USUAL)
        self.lost: str | None = None

    async def set_up(
        self, setup: wire.Setup, ruleset: int | None, *, spare: bool = True
    ) -> None:
        """Until the init is ready. SetupRefused says what it could not do.

        `spare`: whether processes for the next command may wait; not where processes are counted.
        """
        descriptors = [] if ruleset is None else [ruleset]
        flags = setup.flags | (wire.SetupFlag.SPARE if spare else wire.SetupFlag(0))
        expected = self._expected_filter() if spare else None
        if expected is not None:
            flags |= wire.SetupFlag.HAS_FILTER
            descriptors.append(expected)
        setup = replace(setup, flags=flags)
        await packets.send(self._control, setup, descriptors)
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

    def _expected_filter(self) -> int | None:
        """What the last command of such a sandbox had."""
        usual = replace(_USUAL, syscall_policy=_last_policy.get(self._kind, "baseline"))
        return filter_descriptor(self._filter_for(usual)) if _loads_ahead(usual) else None

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
        _last_policy[self._kind] = command.syscall_policy
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
            packets.send_at_once(self._control, request, descriptors)
        except BlockingIOError:
            ours.close()
            return None
        except OSError as error:
            ours.close()
            reason = self.last_words() or os.strerror(error.errno or 0)
            raise SandboxUnavailable(f"the sandbox ended before the command: {reason}") from None
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        return InitProcess(
            ours, self, command, filter_loaded=program is not None, terminal=terminal
        )


def exec_request(
    command: Command, *, has_filter: bool, has_terminal: bool, has_cgroup: bool, root: bool
) -> wire.Exec:
    said = (
        command.pty is not None, has_filter, command.keep_background, has_cgroup, has_terminal,
        command.explain, _loads_ahead(command),
    )  # fmt: skip
    flags = sum(bit for bit, on in zip(_FLAGS, said, strict=True) if on)
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
