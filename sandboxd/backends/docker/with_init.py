"""A container whose entry point is our init, on an engine that shares this machine's files.

The init's socket is in a bound folder; from then on everything is as on bubblewrap: exact reports,
descriptors, terminals, warm and persistent sandboxes. When the daemon dies the socket closes, the
init ends, and the engine removes the container by itself.
"""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass

import anyio

from sandboxd.backends.docker.container import Entry, Frame, create_body
from sandboxd.backends.docker.counted import CountedSandbox
from sandboxd.backends.docker.counters import Counters
from sandboxd.backends.docker.dial import ENTRY, INSIDE, Doorstep
from sandboxd.backends.docker.engine import Engine, EngineError
from sandboxd.backends.docker.inodes import inode_checks
from sandboxd.backends.docker.lifetime import Containers, new_name
from sandboxd.backends.docker.mounts import Bind, Mount
from sandboxd.backends.docker.netns_helper import NetnsHelpers
from sandboxd.backends.gated import GatedSandbox
from sandboxd.backends.support import LinuxSupport
from sandboxd.egress.gate import Gate
from sandboxd.linux import confinement, init_binary
from sandboxd.linux import init_wire as wire
from sandboxd.linux.handed_sockets import SocketWish
from sandboxd.linux.init_sandbox import InitSandbox, SetupRefused
from sandboxd.linux.launch import LaunchFailed
from sandboxd.linux.openat import unchanged
from sandboxd.linux.seccomp import FilterSpec
from sandboxd.policy.layout import Layout
from sandboxd.policy.plan import RunAs, SandboxSpec
from sandboxd.sandbox import Command, Sandbox
from sandboxd_proto.errors import SandboxdError

READY_S = 30.0


@dataclass(frozen=True, slots=True)
class Making:
    """One container, decided. `owner`: who the init is on this machine."""

    spec: SandboxSpec
    places: Layout
    mounts: Sequence[Mount]
    frame: Frame
    owner: RunAs
    landlock_abi: int


class WithInit:
    def __init__(self, containers: Containers, support: LinuxSupport) -> None:
        self._containers = containers
        self._engine: Engine = containers.engine
        self._parent = support.state.folder("docker")
        self._helpers = NetnsHelpers(containers, self._parent, self._ended)
        self._egress = support.egress
        self._init = os.path.join(self._parent, "init")
        if not os.path.exists(self._init):
            shutil.copyfile(init_binary.PATH, self._init)
            os.chmod(self._init, 0o555)

    @asynccontextmanager
    async def open(self, making: Making) -> AsyncIterator[Sandbox]:
        """LaunchFailed when the init does not come up; EngineError as the engine says it."""
        name = new_name()
        checks = inode_checks(making.mounts)
        step = Doorstep(self._parent, name, self._init, making.owner)
        try:
            mounts = [*making.mounts, Bind(step.folder, INSIDE)]
            body = create_body(making.spec, mounts, Entry(ENTRY), making.frame)
            async with self._containers.created(body, name) as container:
                await self._engine.start(container)
                control, peer = await step.answered(
                    container, making.owner.uid, lambda: self._ended(container)
                )
                with control:
                    inner = InitSandbox(
                        control, filter_for=lambda command: _filter(making.spec, command),
                        root=making.owner.uid == 0, verify=lambda: _unchanged(making.spec),
                    )  # fmt: skip
                    await _set_up(inner, making, checks)
                    counted = CountedSandbox(
                        inner, Counters.of(peer.pid), lambda: self._why_lost(container)
                    )
                    if making.spec.network.kind != "allow_hosts":
                        yield counted
                        return
                    async with self._gate(container, making) as gate:
                        yield GatedSandbox(counted, gate)
        finally:
            step.close()

    @asynccontextmanager
    async def _gate(self, container: str, making: Making) -> AsyncIterator[Gate]:
        async with AsyncExitStack() as stack:

            async def make(wishes: Sequence[SocketWish]) -> list[socket.socket]:
                return await self._helpers.sockets(container, making.frame, wishes, stack)

            async with self._egress.gate(making.spec.network, make) as gate:
                yield gate

    async def _ended(self, container: str) -> str | None:
        try:
            state = (await self._engine.inspect(container))["State"]
        except EngineError as error:
            return f"the container is gone: {error.message}"
        if state.get("Running") or state.get("Status") == "created":
            return None
        said = state.get("Error") or "its socket in a bound folder could not be reached"
        return f"the container's init ended with {state.get('ExitCode')}: {said}"

    async def _why_lost(self, container: str) -> str | None:
        """None: nothing is wrong with the engine."""
        try:
            await self._engine.inspect(container)
        except SandboxdError as error:
            return f"the container ended under the command: {error.message}"
        except EngineError:
            return "the engine ended the container under the command (it was removed or restarted)"
        return None


async def _set_up(inner: InitSandbox, making: Making, checks: list[wire.Check]) -> None:
    with ExitStack() as held:
        abi = making.landlock_abi
        ruleset = held.enter_context(confinement.ruleset(abi)) if abi else None
        flags = wire.SetupFlag.WATCH_MOUNTS | wire.SetupFlag.REQUIRE_PID1
        if making.spec.network.kind == "deny":
            flags |= wire.SetupFlag.NOTIFY
        setup = wire.Setup(
            flags=flags | (wire.SetupFlag.HAS_RULESET if ruleset else wire.SetupFlag(0)),
            checks=checks,
            rules=confinement.rules(making.places, abi) if ruleset else (),
        )
        try:
            with anyio.fail_after(READY_S):
                # The engine counts every process of the container.
                counts = making.spec.limits is not None and making.spec.limits.processes is not None
                descriptor = ruleset.fileno() if ruleset else None
                await inner.set_up(setup, descriptor, spare=not counts)
        except SetupRefused as refused:
            raise LaunchFailed(str(refused) or "the container's init ended") from None
        except (TimeoutError, OSError) as error:
            raise LaunchFailed(f"no word from the container's init: {error}") from None
        except wire.InitLied as lie:
            raise LaunchFailed(f"the init said something impossible: {lie}") from None


def _filter(spec: SandboxSpec, command: Command) -> FilterSpec:
    return FilterSpec(
        level=command.syscall_policy, restrict_families=spec.network.kind != "inherit"
    )


def _unchanged(spec: SandboxSpec) -> bool:
    return all(unchanged(grant.path, grant.identity) for grant in spec.grants) and all(
        os.path.lexists(mask.path) for mask in spec.masks
    )
