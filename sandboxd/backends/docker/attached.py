"""A command as a container of its own, carried by the engine's attach API: no init of ours inside.

For engines that do not share this machine's sockets. What the engine can tell is less: a signal
that we did not send shows as exit code 128+n, and usage is not known. A container serves one
command, so there is nothing to keep warm, and no sandbox that several commands could share.
"""

from __future__ import annotations

import logging
import math
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

import anyio
from anyio.abc import TaskGroup

from sandboxd.backends.docker.attached_process import AttachedProcess
from sandboxd.backends.docker.container import Entry, Frame, create_body
from sandboxd.backends.docker.diagnosis import explained
from sandboxd.backends.docker.engine import Body, EngineError, ImageFacts
from sandboxd.backends.docker.lifetime import Containers
from sandboxd.backends.docker.mounts import Mount
from sandboxd.backends.docker.programs import locate, refusal_to_run
from sandboxd.linux.openat import unchanged
from sandboxd.policy.plan import Limits, SandboxSpec
from sandboxd.sandbox import Command, Process, Stdio
from sandboxd_proto.errors import PolicyNotSupported

log = logging.getLogger(__name__)
MAX_LOCATED = 1024
Key = tuple[str, str, str, str | None]


class Attached:
    """`engine_init`: whether this engine can put an init of its own before a command."""

    def __init__(self, containers: Containers) -> None:
        self.containers = containers
        self.tasks: TaskGroup | None = None
        self.engine_init = True
        # Where a program is in an image, which never changes: (image, name, cwd, PATH) → path.
        self.located: dict[Key, str] = {}

    def remember(self, key: Key, program: str) -> None:
        if len(self.located) >= MAX_LOCATED:
            self.located.clear()
        self.located[key] = program

    @asynccontextmanager
    async def sandbox(
        self, spec: SandboxSpec, mounts: Sequence[Mount], frame: Frame
    ) -> AsyncIterator[AttachedSandbox]:
        """Nothing is running before the command; nothing is left of it afterwards."""
        async with AsyncExitStack() as made:
            yield AttachedSandbox(self, spec, mounts, frame, made)


class AttachedSandbox:
    def __init__(
        self, way: Attached, spec: SandboxSpec, mounts: Sequence[Mount], frame: Frame,
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

    async def spawn(self, command: Command, stdio: Stdio | None) -> Process:
        if command.keep_background:
            raise PolicyNotSupported(
                "this engine runs each command in a container of its own: no sandbox lasts",
                field="sandbox",
                remedy="send each command with its manifest, or use an engine on this machine",
            )
        try:
            return await self._spawned(command, stdio)
        except EngineError as error:
            if self._way.engine_init and "docker-init" in error.message:
                self._way.engine_init = False
                return await self._spawned(command, stdio)
            raise refusal_to_run(command, error) or explained(error, self._frame.image) from None

    async def _spawned(self, command: Command, stdio: Stdio | None) -> Process:
        tasks = self._way.tasks
        assert tasks is not None, "commands run while the daemon serves"
        engine = self._way.containers.engine
        image = await engine.image(self._frame.image)
        entry = Entry(
            argv=await self._located(command, image.identity), env=command.env,
            cwd=command.cwd, stdin=True, tty=command.pty is not None,
            engine_init=self._way.engine_init, remove_at_end=False, unset=_not_asked_for(command, image),
        )  # fmt: skip
        async with AsyncExitStack() as stack:
            body = self._body(command, entry)
            container = await stack.enter_async_context(self._way.containers.created(body))
            stream = await engine.attach(container, stdin=True, tty=entry.tty)
            stack.push_async_callback(stream.close)
            process = AttachedProcess(engine, container, stream, command, stdio)
            stack.callback(process.close)
            await engine.start(container)
            process.run(tasks)
            if command.pty is not None:
                with anyio.move_on_after(1):
                    await engine.resize(container, command.pty.rows, command.pty.cols)
            self._made.push_async_exit(stack.pop_all())
        return process


    async def _located(self, command: Command, image: str) -> tuple[str, ...]:
        """In a container that is never started: the entry point cannot be changed afterwards."""
        key = (image, command.argv[0], command.cwd, dict(command.env).get("PATH"))
        program = self._way.located.get(key)
        if program is None:
            body = self._body(command, Entry(command.argv))
            async with self._way.containers.created(body) as container:
                program = await locate(self._way.containers.engine, container, command)
            if not any(program.startswith(f"{mount.dest}/") for mount in self._mounts):
                self._way.remember(key, program)
        return (program, *command.argv[1:])

    def _body(self, command: Command, entry: Entry) -> Body:
        frame = replace(
            self._frame, ulimits=_ulimits(command.limits),
            own_processes=1 if entry.engine_init else 0,
        )  # fmt: skip
        return create_body(self._spec, self._mounts, entry, frame)


def _not_asked_for(command: Command, image: ImageFacts) -> tuple[str, ...]:
    """What image and engine would add to the environment. HOME stays: the runtime insists on it."""
    asked = dict(command.env)
    names = dict.fromkeys(("PATH", "HOSTNAME", "TERM", *image.variables))
    return tuple(name for name in names if name not in asked)


def _ulimits(limits: Limits) -> dict[str, int]:
    found: dict[str, int] = {}
    if limits.file_bytes is not None:
        found["fsize"] = limits.file_bytes
    if limits.cpu_s is not None:
        found["cpu"] = math.ceil(limits.cpu_s) + 1
    return found
