"""A command as a container of its own, carried by the engine's attach API.

For engines that do not share this machine's sockets: remote ones, and those in a virtual machine.
Our init is copied into the container, into a volume that goes with it, together with what the
daemon would have told it; its answers come back between the command's own output (framing.py). So
reports are as exact as everywhere. What is missing is a way in for a second command: nothing is
kept warm, and no sandbox lasts.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

import anyio
from anyio.abc import TaskGroup

from sandboxd.backends.docker.attached_process import Bridge, Streams
from sandboxd.backends.docker.container import Entry, Frame, Volume, create_body
from sandboxd.backends.docker.diagnosis import explained
from sandboxd.backends.docker.engine import EngineError
from sandboxd.backends.docker.framing import new_word
from sandboxd.backends.docker.lifetime import Containers
from sandboxd.backends.docker.luggage import packed
from sandboxd.backends.docker.mounts import Mount
from sandboxd.linux import packets
from sandboxd.linux.init_process import InitProcess
from sandboxd.linux.init_sandbox import InitSandbox
from sandboxd.linux.openat import unchanged
from sandboxd.linux.seccomp import FilterSpec
from sandboxd.policy.plan import SandboxSpec
from sandboxd.sandbox import Command, Process, Stdio
from sandboxd_proto.errors import PolicyNotSupported, SandboxUnavailable

INSIDE = "/.sandboxd"
ENTRY = (f"{INSIDE}/init", "--carried", INSIDE)
START_S = 60.0
OWN_PROCESSES = 3  # PID 1, the init, the keeper


class Attached:
    """`tasks`: those of the daemon's life, set while it serves."""

    def __init__(self, containers: Containers) -> None:
        self.containers = containers
        self.tasks: TaskGroup | None = None

    @asynccontextmanager
    async def sandbox(
        self, spec: SandboxSpec, mounts: Sequence[Mount], frame: Frame
    ) -> AsyncIterator[AttachedSandbox]:
        """Nothing is running before the command; nothing is left of it afterwards."""
        async with AsyncExitStack() as made:
            frame = replace(frame, own_processes=OWN_PROCESSES)
            yield AttachedSandbox(self, spec, [*mounts, Volume(INSIDE)], frame, made)


class AttachedSandbox:
    def __init__(
        self, way: Attached, spec: SandboxSpec, mounts: Sequence[Mount | Volume], frame: Frame,
        made: AsyncExitStack,
    ) -> None:  # fmt: skip
        self._way = way
        self._spec = spec
        self._mounts = mounts
        self._frame = frame
        self._made = made
        self.alive = True

    def verify(self) -> bool:
        return all(unchanged(grant.path, grant.identity) for grant in self._spec.grants)

    def spawn_now(self, command: Command, stdio: Stdio | None) -> Process | None:
        return None  # its container has to be made

    async def spawn(self, command: Command, stdio: Stdio | None) -> Process:
        if command.keep_background:
            raise PolicyNotSupported(
                "this engine runs each command in a container of its own: no sandbox lasts",
                field="sandbox",
                remedy="send each command with its manifest, or use an engine on this machine",
            )
        async with AsyncExitStack() as stack:
            try:
                process = await self._spawned(command, stdio, stack)
            except EngineError as error:
                raise explained(error, self._frame.image) from None
            self._made.push_async_exit(stack.pop_all())
        return process

    async def _spawned(
        self, command: Command, stdio: Stdio | None, stack: AsyncExitStack
    ) -> InitProcess:
        tasks = self._way.tasks
        assert tasks is not None, "commands run while the daemon serves"
        containers, engine = self._way.containers, self._way.containers.engine
        word = new_word()
        entry = Entry(
            argv=(*ENTRY, *_size(command)), env=(("SANDBOXD_WORD", word),), stdin=True,
            tty=command.pty is not None, remove_at_end=False,
        )  # fmt: skip
        body = create_body(self._spec, self._mounts, entry, self._frame)
        container = await stack.enter_async_context(containers.created(body))
        # What the container as a whole holds needs no second watch inside.
        told = replace(command, limits=replace(command.limits, memory_bytes=None))
        spec = FilterSpec(
            level=command.syscall_policy, restrict_families=self._spec.network.kind != "inherit"
        )
        luggage = packed(told, spec, root=self._frame.user.uid == 0)
        await engine.put(container, INSIDE, luggage.tar)
        output = await engine.attach(container, "output", tty=entry.tty)
        stack.push_async_callback(output.close)
        given = await engine.attach(container, "input", tty=entry.tty)
        stack.push_async_callback(given.close)
        channel, theirs = packets.pair()
        control, other = packets.pair()
        stack.callback(control.close)
        other.close()
        sandbox = InitSandbox(
            control, filter_for=lambda _: spec, root=False, verify=self.verify
        )
        process = InitProcess(channel, sandbox, command, filter_loaded=luggage.has_filter)
        stack.callback(process.close)
        streams = Streams(given, output)
        bridge = Bridge(engine, container, streams, word, theirs, sandbox, command, stdio)
        stack.callback(bridge.close)
        await engine.start(container)
        bridge.run(tasks)
        try:
            with anyio.fail_after(START_S):
                await process.started()
        except TimeoutError:
            raise SandboxUnavailable(
                f"the container's init did not say in {START_S:g} s that the command runs"
            ) from None
        return process


def _size(command: Command) -> tuple[str, ...]:
    return (str(command.pty.rows), str(command.pty.cols)) if command.pty is not None else ()
