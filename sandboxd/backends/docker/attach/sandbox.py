"""One container for each command, over the engine's attach API.

For engines that do not share this machine's sockets: remote ones, and those in a virtual machine.
The init and its messages are copied into a volume of the container; its answers come back within
the command's output (framing.py). So reports are as exact as elsewhere. A second command cannot be
sent, so there are no warm and no persistent sandboxes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import anyio
from anyio.abc import TaskGroup
from msgspec.structs import replace

from sandboxd.backends.docker.attach.bridge import AttachStreams, Bridge
from sandboxd.backends.docker.attach.bundle import pack
from sandboxd.backends.docker.attach.framing import new_word
from sandboxd.backends.docker.containers import Containers
from sandboxd.backends.docker.diagnosis import explain_error
from sandboxd.backends.docker.engine import EngineError
from sandboxd.backends.docker.mounts import ContainerMount
from sandboxd.backends.docker.spec import ContainerContext, ContainerEntry, Volume, create_body
from sandboxd.linux.init_client import seqpacket
from sandboxd.linux.init_client.process import InitProcess
from sandboxd.linux.init_client.session import InitSandbox
from sandboxd.linux.openat import is_unchanged
from sandboxd.linux.seccomp import FilterSpec
from sandboxd.policy.plan import SandboxSpec
from sandboxd.types import Command, Process, Stdio
from sandboxd_proto.errors import PolicyNotSupported, SandboxUnavailable

INSIDE = "/.sandboxd"
ENTRY = (f"{INSIDE}/init", "--carried", INSIDE)
START_S = 60.0
OWN_PROCESSES = 3  # PID 1, the init, the reaper


class AttachSandboxes:
    """`tasks`: the task group of the daemon, set while it serves."""

    def __init__(self, containers: Containers) -> None:
        self.containers = containers
        self.tasks: TaskGroup | None = None

    @asynccontextmanager
    async def sandbox(
        self, spec: SandboxSpec, mounts: Sequence[ContainerMount], frame: ContainerContext
    ) -> AsyncIterator[AttachedSandbox]:
        """Nothing runs before the command, and nothing is left after it."""
        async with AsyncExitStack() as made:
            frame = replace(frame, own_processes=OWN_PROCESSES)
            yield AttachedSandbox(self, spec, [*mounts, Volume(INSIDE)], frame, made)


class AttachedSandbox:
    def __init__(
        self,
        way: AttachSandboxes,
        spec: SandboxSpec,
        mounts: Sequence[ContainerMount | Volume],
        frame: ContainerContext,
        made: AsyncExitStack,
    ) -> None:
        self._way = way
        self._spec = spec
        self._mounts = mounts
        self._frame = frame
        self._made = made
        self.alive = True

    def verify(self) -> bool:
        return all(is_unchanged(grant.path, grant.identity) for grant in self._spec.grants)

    def spawn_now(self, command: Command, stdio: Stdio | None) -> Process | None:
        return None  # its container has to be made

    async def spawn(self, command: Command, stdio: Stdio | None) -> Process:
        if command.keep_background:
            raise PolicyNotSupported(
                "this engine has one container for each command: no persistent sandboxes",
                field="sandbox",
                remedy="send each command with its manifest, or use an engine on this machine",
            )
        async with AsyncExitStack() as stack:
            try:
                process = await self._spawned(command, stdio, stack)
            except EngineError as error:
                raise explain_error(error, self._frame.image) from None
            self._made.push_async_exit(stack.pop_all())
        return process

    async def _spawned(
        self, command: Command, stdio: Stdio | None, stack: AsyncExitStack
    ) -> InitProcess:
        tasks = self._way.tasks
        assert tasks is not None, "commands run while the daemon serves"
        containers, engine = self._way.containers, self._way.containers.engine
        word = new_word()
        entry = ContainerEntry(
            argv=(*ENTRY, *_size(command)),
            env=(("SANDBOXD_WORD", word),),
            stdin=True,
            tty=command.pty is not None,
            remove_at_end=False,
        )
        body = create_body(self._spec, self._mounts, entry, self._frame)
        container = await stack.enter_async_context(containers.created(body))
        # The init need not watch limits that the container enforces.
        told = replace(command, limits=replace(command.limits, memory_bytes=None))
        spec = FilterSpec(
            level=command.syscall_policy, restrict_families=self._spec.network.kind != "inherit"
        )
        bundle = pack(told, spec, "root" if self._frame.user.uid == 0 else "container")
        await engine.put(container, INSIDE, bundle.tar)
        output = await engine.attach(container, "output", tty=entry.tty)
        stack.push_async_callback(output.close)
        given = await engine.attach(container, "input", tty=entry.tty)
        stack.push_async_callback(given.close)
        channel, theirs = seqpacket.pair()
        control, other = seqpacket.pair()
        stack.callback(control.close)
        other.close()
        sandbox = InitSandbox(
            control, filter_for=lambda _: spec, counts="container", verify=self.verify
        )
        process = InitProcess(channel, sandbox, command, filter_loaded=bundle.has_filter)
        stack.callback(process.close)
        streams = AttachStreams(given, output)
        bridge = Bridge(engine, container, streams, word, theirs, sandbox, command, stdio)
        stack.callback(bridge.close)
        await engine.start(container)
        bridge.run(tasks)
        try:
            with anyio.fail_after(START_S):
                await process.started()
        except TimeoutError:
            raise SandboxUnavailable(
                f"the container's init did not report the command's start in {START_S:g} s"
            ) from None
        return process


def _size(command: Command) -> tuple[str, ...]:
    return (str(command.pty.rows), str(command.pty.cols)) if command.pty is not None else ()
