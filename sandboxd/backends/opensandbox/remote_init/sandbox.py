"""A sandbox of the server with our init in it: commands run below it as they do on this machine.

The init's program is uploaded and started once, before any command. To the rest of the daemon the
sandbox is an InitSandbox like any other: what it sends with descriptors is taken apart here, and
put together again inside (linux/init/remote).
"""

from __future__ import annotations

import os
import secrets
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache

import anyio
from anyio.abc import TaskGroup

from sandboxd.backends.local_io import LocalEnds
from sandboxd.backends.opensandbox.execd import Execd
from sandboxd.backends.opensandbox.execd_files import ExecdFiles
from sandboxd.backends.opensandbox.remote_init.framing import Frame, Kind, exec_data
from sandboxd.backends.opensandbox.remote_init.link import Link
from sandboxd.backends.opensandbox.remote_init.relay import StdioRelay
from sandboxd.linux.init_client import binary, codec, seqpacket
from sandboxd.linux.init_client import messages as wire
from sandboxd.linux.init_client.process import InitProcess
from sandboxd.linux.init_client.session import InitSandbox, SetupRefused
from sandboxd.linux.seccomp import FilterSpec
from sandboxd.types import Command, PtyRequest, Stdio
from sandboxd_proto.errors import SandboxUnavailable

SETUP = wire.Setup()
REMEDY = (
    'set [opensandbox] way = "execd" for images of another architecture, and for those whose /tmp '
    "programs cannot be started from"
)


class RemoteInit:
    """`link`: how it is reached. Its commands are carried by tasks of the daemon."""

    def __init__(self, execd: Execd, files: ExecdFiles, tasks: TaskGroup) -> None:
        self._files = files
        self._tasks = tasks
        self._folder = f"/tmp/.sandboxd-{secrets.token_hex(8)}"
        self.link = Link(execd, files, self._folder, self._take, self._close)
        self._relays: dict[int, StdioRelay] = {}
        self._numbers = 0
        control, self._control = seqpacket.pair()
        self._control.setblocking(False)
        self._ours = control
        self._inner = InitSandbox(control, filter_for=_filter, counts="root", verify=lambda: True)

    @property
    def alive(self) -> bool:
        return self.link.broken is None and self._inner.alive

    @asynccontextmanager
    async def started(self, timeout_s: float) -> AsyncIterator[RemoteInit]:
        """SandboxUnavailable where the init does not come up. It may be left in another task."""
        await self._files.put(_program(), f"{self._folder}/init", timeout_s, mode=700)
        self._tasks.start_soon(self.link.run)
        self._tasks.start_soon(self._read_control)
        try:
            with anyio.move_on_after(timeout_s) as waiting:
                await self._set_up()
            if waiting.cancelled_caught or not self.alive:
                raise self._failed()
            yield self
        finally:
            self.link.give_up("its sandbox ended")
            self._close()
            self._ours.close()

    async def _set_up(self) -> None:
        try:
            await self._inner.set_up(SETUP, None, prefork=False)
        except SetupRefused as refused:
            raise self._failed(str(refused)) from None
        except (OSError, codec.InitProtocolViolation) as error:
            raise self._failed(str(error)) from None

    def _failed(self, said: str = "") -> SandboxUnavailable:
        why = self.link.broken or said or "it does not answer"
        return SandboxUnavailable(
            f"sandboxd's init does not start in the sandbox: {why}", remedy=REMEDY
        )

    async def spawn(self, command: Command, stdio: Stdio | None) -> InitProcess:
        return await self._inner.spawn(command, stdio)

    # from the daemon to the sandbox

    async def _read_control(self) -> None:
        try:
            while True:
                await anyio.wait_readable(self._control)
                message, fds, _, _ = socket.recv_fds(
                    self._control, codec.MESSAGE_MAX, codec.FDS_MAX
                )
                if not message:
                    return
                self._forward(message, fds)
        except (OSError, anyio.ClosedResourceError):
            return

    def _forward(self, message: bytes, fds: list[int]) -> None:
        if message[0] != codec.MessageType.EXEC:
            self.link.send(Kind.CONTROL, 0, message)
            return
        given = list(fds)
        try:
            payload = None
            if message[1] & codec.HeaderFlag.PAYLOAD_IN_FD:
                payload = _contents(given.pop(0))
            body = message[codec.HEADER_BYTES :] if payload is None else payload
            flags, rows, columns = struct.unpack_from("<IHH", body)
            channel = socket.socket(fileno=os.dup(given.pop(0)))
            program = _contents(given.pop(0)) if flags & wire.ExecFlag.HAS_FILTER else None
            if flags & wire.ExecFlag.PTY:
                ends = LocalEnds(None, PtyRequest(rows, columns))
            else:
                ends = LocalEnds(Stdio(*given), None)
        finally:
            for fd in fds:
                os.close(fd)
        self._numbers += 1
        self.link.send(Kind.EXEC, self._numbers, exec_data(flags, message, payload, program))
        relay = StdioRelay(self.link, self._numbers, channel, ends)
        self._relays[self._numbers] = relay
        relay.start(self._tasks, self._relays.pop)

    # from the sandbox to the daemon

    def _take(self, frame: Frame) -> None:
        if frame.kind is not Kind.CONTROL:
            relay = self._relays.get(frame.command)
            if relay is not None:
                relay.take(frame)
            return
        codec.decode_control(frame.data)
        try:
            self._control.send(frame.data)
        except OSError:
            raise codec.InitProtocolViolation("too many messages of the init") from None

    def _close(self) -> None:
        for relay in list(self._relays.values()):
            relay.close()
        if self._control.fileno() >= 0:
            anyio.notify_closing(self._control)
            self._control.close()


def _filter(command: Command) -> FilterSpec:
    return FilterSpec(level=command.syscall_policy, restrict_families=False)


def _contents(fd: int) -> bytes:
    """Of a memfd."""
    return os.pread(fd, os.fstat(fd).st_size, 0)


@cache
def _program() -> bytes:
    with open(binary.PATH, "rb") as file:
        return file.read()
