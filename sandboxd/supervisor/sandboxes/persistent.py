"""Sandboxes that outlive a command: they share /tmp, localhost and background processes."""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass
from typing import Protocol
from uuid import uuid4

import anyio
import anyio.lowlevel
import msgspec

from sandboxd.backends.interface import Backend, Enforcement
from sandboxd.policy.plan import Plan
from sandboxd.policy.request import PolicyRequest
from sandboxd.supervisor.background import Background
from sandboxd.supervisor.classifier import Classifier
from sandboxd.supervisor.execution.stdio.ends.current_platform import ends
from sandboxd.supervisor.sandboxes.files import SandboxFiles
from sandboxd.supervisor.sandboxes.forward import ConnectionBudget, Forward, Listen
from sandboxd.supervisor.sessions.session import Session
from sandboxd.types import ExplainsEnd, Process, Sandbox
from sandboxd.workspace_guard.shared_guard import Member, SharedGuards
from sandboxd_proto.amounts import shown_seconds
from sandboxd_proto.errors import Busy, Conflict, InvalidParams, NotFound, PolicyNotSupported
from sandboxd_proto.messages.sandbox import SandboxScope

log = logging.getLogger(__name__)
IDLE_S = 1800.0
MAX_SANDBOXES = 1024
MAX_FORWARDS = 64
MOST_ENDED = 64
SWEEP_S = 1.0
END_COMMANDS_S = 2.0
LONGEST_NAME = 128
Visible = Callable[["PersistentSandbox"], bool]


@dataclass(slots=True)
class MadeFrom:
    """The request that it was made for, its plan of then, and the last one that was compared with
    that. None of them has the session's /tmp."""

    policy: PolicyRequest
    plan: Plan
    compared: Plan | None = None


class NameAndScope(msgspec.Struct, frozen=True):
    """The name of a sandbox, and its scope: it ends with the daemon, its session, or the connection
    that made it. `id`: chosen before it is opened."""

    scope: SandboxScope = "user"
    name: str | None = None
    connection: object = None
    id: str | None = None


UNNAMED = NameAndScope()


def new_id() -> str:
    return f"sb-{uuid4().hex}"


class RunningCommand(Protocol):
    def cancel(self) -> None: ...
    async def finished(self) -> None: ...


class PersistentSandbox:
    """Its `commands` keep it alive; background processes do not."""

    def __init__(
        self, plan: Plan, made_from: MadeFrom, backend: Backend, sandbox: Sandbox,
        hold: AsyncExitStack, idle_s: float, classifier: Classifier,
    ) -> None:  # fmt: skip
        self.id = new_id()
        self.plan = plan
        self.made_from = made_from
        self.backend = backend
        self.sandbox = sandbox
        self.hold = hold
        self._enforcement: Enforcement | None = None
        self.idle_s = idle_s
        self._classifier = classifier
        self.created_at = time.time()
        self.watched: Member | None = None
        self.session: Session | None = None
        self.scope: SandboxScope = "user"
        self.name: str | None = None
        self.connection: object = None
        self.commands: set[RunningCommand] = set()
        self.lost = False
        self.ended_for: str | None = None
        self._files: SandboxFiles | None = None
        self.forwards: dict[str, Forward] = {}
        self.last_used = time.monotonic()

    def files(self) -> SandboxFiles:
        """PolicyNotSupported where nothing inside can carry out file operations."""
        if not self.backend.capabilities.files:
            raise PolicyNotSupported(
                f"the backend {self.backend.name} has no file operations", field="sandbox",
                remedy="use a command, or another backend",
            )  # fmt: skip
        self.last_used = time.monotonic()
        if self._files is None:
            self._files = SandboxFiles(self.sandbox, self.plan, self._classifier)
        return self._files

    def enforcement(self, plan: Plan) -> Enforcement:
        """Of its own plan, or of one that a command narrowed."""
        if plan is not self.plan:
            return self.backend.enforcement(plan)
        if self._enforcement is None:
            self._enforcement = self.backend.enforcement(plan)
        return self._enforcement

    async def close(self) -> None:
        """End all its processes, then move aside protected paths that appeared."""
        if not self.lost:
            await self._cancel_commands()
        if self.watched is not None:
            self.watched.mute()
        for forward in self.forwards.values():
            forward.close()
        if self._files is not None:
            self._files.close()
        with anyio.CancelScope(shield=True):
            await self.hold.aclose()
            for path, moved_to in await self.watched.conclude() if self.watched else ():
                log.warning("protected path %s appeared; it is now %s", path, moved_to or "gone")

    async def _cancel_commands(self) -> None:
        """Before it ends: it did not fail under them."""
        running = list(self.commands)
        for command in running:
            command.cancel()
        with anyio.move_on_after(END_COMMANDS_S, shield=True):
            for command in running:
                await command.finished()

    def idle(self, now: float) -> bool:
        """Whether for its idle time no command ran and no forwarded connection was open."""
        used = max([self.last_used, *(one.used_at(now) for one in self.forwards.values())])
        return not self.commands and now - used > self.idle_s


class PersistentSandboxes:
    def __init__(self, background: Background, forwards_folder: str) -> None:
        self._background = background
        self._forwards_folder = forwards_folder
        self._by_id: dict[str, PersistentSandbox] = {}
        self._ended: dict[str, PersistentSandbox] = {}  # the last of those that no client destroyed
        self._guards = SharedGuards()
        self._budget = ConnectionBudget()
        self.on_end: Callable[[PersistentSandbox], None] = lambda ended: None

    def __len__(self) -> int:
        return len(self._by_id)

    def all(self) -> list[PersistentSandbox]:
        return list(self._by_id.values())

    def admit(self, idle_s: float | None) -> float:
        """The idle time-out to use; refuses before anything is opened."""
        if idle_s is not None and not (math.isfinite(idle_s) and idle_s > 0):
            raise InvalidParams("idle_secs must be greater than zero", field="idle_secs")
        if len(self._by_id) >= MAX_SANDBOXES:
            raise Busy(
                f"{MAX_SANDBOXES} sandboxes exist already",
                remedy="destroy one with sandbox/destroy",
            )
        return IDLE_S if idle_s is None else idle_s

    def add(self, made: PersistentSandbox) -> None:
        """Its protected paths are watched for as long as it lives."""

        def violated() -> None:
            self._lose(made, made.watched.ended_for if made.watched is not None else None)

        for ended in [one for one in self._ended.values() if one.name and one.name == made.name]:
            del self._ended[ended.id]
        made.watched = self._guards.join(made.plan.sandbox, violated, made.plan.nested)
        self._by_id[made.id] = made

    def check_name(self, name: str | None) -> None:
        if name is None:
            return
        if not 0 < len(name) <= LONGEST_NAME or name.startswith("sb-"):
            raise InvalidParams(
                f"a name has 1 to {LONGEST_NAME} characters and does not begin with sb-",
                field="name",
            )
        if any(one.name == name and one.sandbox.alive for one in self._by_id.values()):
            raise Conflict(
                f"a sandbox named {name!r} exists", reason="name", field="name",
                remedy="use it, destroy it, or choose another name",
            )  # fmt: skip

    def find(self, sandbox_id: str, visible: Visible | None = None) -> PersistentSandbox:
        """By id or name. `visible`: one that the caller may not see does not exist for it."""
        found = self._by_id.get(sandbox_id)
        if found is None:
            named = [one for one in self._by_id.values() if one.name == sandbox_id]
            # A dead one does not hide its successor of the same name.
            found = next((one for one in named if one.sandbox.alive), named[0] if named else None)
        if found is not None and visible is not None and not visible(found):
            found = None
        if found is not None and not found.sandbox.alive:
            self._lose(found)
            found = None
        if found is None:
            why = next((one.ended_for for one in self._ended_as(sandbox_id, visible)), None)
            raise NotFound(
                f"there is no sandbox {sandbox_id!r}" + (f" any more: {why}" if why else ""),
                field="sandbox",
                remedy="`sandbox/list` shows those that exist; `sandbox/create` makes one",
            )
        return found

    def _ended_as(self, name: str, visible: Visible | None) -> Iterator[PersistentSandbox]:
        for one in self._ended.values():
            if name in (one.id, one.name) and (visible is None or visible(one)):
                yield one

    def find_or_lost(self, sandbox_id: str, visible: Visible) -> PersistentSandbox:
        """Also one that was lost, among the last that ended."""
        try:
            return self.find(sandbox_id, visible)
        except NotFound:
            for one in self._ended_as(sandbox_id, visible):
                if one.lost:
                    return one
            raise

    def _lose(self, found: PersistentSandbox, why: str | None = None) -> None:
        """Its init or its isolation is gone."""
        found.lost = True
        if why is None and isinstance(found.sandbox, ExplainsEnd):
            why = found.sandbox.last_words()
        self.end(found, why or "it ended by itself")
        log.warning("sandbox %s is ended: %s", found.id, found.ended_for)

    async def destroy(self, found: PersistentSandbox) -> None:
        self._forget(found)
        await found.close()

    def _forget(self, found: PersistentSandbox) -> None:
        if self._by_id.pop(found.id, None) is not None:
            self.on_end(found)

    def end_of_connection(self, connection: object) -> None:
        """The sandboxes that end with this connection."""
        for found in self.all():
            if found.scope == "connection" and found.connection is connection:
                self.end(found)

    async def destroy_of(self, session: Session) -> None:
        """Destroy the sandboxes that end with this session."""
        for found in self.all():
            if found.session is session and found.scope == "session":
                await self.destroy(found)

    def end(self, found: PersistentSandbox, why: str | None = None) -> None:
        """End it without waiting. `why`: for who uses its name later."""
        if found.id in self._by_id:
            self._forget(found)
            self._background.start(found.close)
        if why is not None:
            found.ended_for, found.connection = why, None
            self._ended[found.id] = found
            if len(self._ended) > MOST_ENDED:
                del self._ended[next(iter(self._ended))]

    async def end_idle(self) -> None:
        """The one task that ends sandboxes that are idle or have died."""
        while True:
            await anyio.sleep(SWEEP_S)
            now = time.monotonic()
            for found in self.all():
                if not found.sandbox.alive:
                    self._lose(found)
                elif found.idle(now):
                    self.end(found, f"nothing ran in it for {shown_seconds(found.idle_s)}")

    def forward(self, kept: PersistentSandbox, port: int, listen: Listen) -> Forward:
        """Serve a port of the sandbox until it ends or `unforward` is called."""
        if len(kept.forwards) >= MAX_FORWARDS:
            raise Busy(
                f"{MAX_FORWARDS} ports of this sandbox are forwarded already",
                remedy="end one with sandbox/unforward",
            )
        files = kept.files()
        network = kept.plan.sandbox.network.kind
        if not kept.backend.capabilities.mounts and network != "inherit":
            raise PolicyNotSupported(
                f"in a sandbox of the backend {kept.backend.name} with network: {network} nothing "
                "can listen", field="sandbox",
                remedy="use the backend bubblewrap or docker, or network: inherit",
            )  # fmt: skip
        os.makedirs(self._forwards_folder, mode=0o700, exist_ok=True)
        made = Forward(files, port, listen, self._forwards_folder, self._budget)
        kept.forwards[made.id] = made
        self._background.start(made.serve)
        return made

    def unforward(self, kept: PersistentSandbox, forward_id: str) -> None:
        found = kept.forwards.pop(forward_id, None)
        if found is None:
            raise NotFound(
                f"there is no forward {forward_id!r}", field="forward",
                remedy="`sandbox/get` shows those of a sandbox",
            )  # fmt: skip
        found.close()

    def linger(self, watched: Member | None, process: Process, outputs: list[int]) -> None:
        """Drain the output of background processes that a command left, until they end.

        Called before its lease is left, so that there is no moment in which nothing seems to run.
        """
        alive = ExitStack()
        if watched is not None:
            alive.enter_context(watched.background())
        self._background.start(_linger, process, outputs, alive)

    async def close(self) -> None:
        """End all of them concurrently: each takes 20 ms, mostly in the kernel."""
        async with anyio.create_task_group() as ends:
            for found in self.all():
                self._forget(found)
                ends.start_soon(found.close)


async def _linger(process: Process, outputs: list[int], alive: ExitStack) -> None:
    held = [ends.ReadEnd(fd) for fd in outputs]
    try:
        async with anyio.create_task_group() as drains:
            for end in held:
                drains.start_soon(_drain, end)
            await process.wait()
            drains.cancel_scope.cancel()
    finally:
        for end in held:
            end.close()
        process.close()
        alive.close()


async def _drain(end: ends.ReadEnd) -> None:
    while (data := end.read_now()) != b"":
        if data is None:
            await end.readable()
        # A fast writer would starve other tasks.
        await anyio.lowlevel.checkpoint()
