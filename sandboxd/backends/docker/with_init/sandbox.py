"""A container whose entry point is our init, on an engine that shares this machine's files.

The init's socket is in a bound folder. Everything else works as on bubblewrap: exact reports,
descriptors, terminals, warm and persistent sandboxes. When the daemon dies the socket closes, the
init ends, and the engine removes the container.
"""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager

import anyio
import msgspec

from sandboxd.backends.docker.containers import Containers, new_name
from sandboxd.backends.docker.engine import Engine, EngineError
from sandboxd.backends.docker.inode_checks import inode_checks
from sandboxd.backends.docker.mounts import ContainerBind, ContainerMount
from sandboxd.backends.docker.spec import ContainerContext, ContainerEntry, create_body
from sandboxd.backends.docker.with_init.container_limits import CountedSandbox
from sandboxd.backends.docker.with_init.counters import Counters
from sandboxd.backends.docker.with_init.handshake import ENTRY, INSIDE, Handshake
from sandboxd.backends.docker.with_init.netns import NetnsHelpers
from sandboxd.backends.gated import GatedSandbox
from sandboxd.backends.linux_context import LinuxSupport, filter_for, paths_hold
from sandboxd.egress.gate import Gate
from sandboxd.linux import unix_peers
from sandboxd.linux.init_client import binary, codec
from sandboxd.linux.init_client import messages as wire
from sandboxd.linux.init_client.launch import LaunchFailed
from sandboxd.linux.init_client.session import InitSandbox, SetupRefused
from sandboxd.linux.landlock import confinement
from sandboxd.linux.netns.handed_sockets import SocketRequest
from sandboxd.policy.mounts.mount_plan import MountPlan
from sandboxd.policy.plan import RunAs, SandboxSpec
from sandboxd.types import Sandbox
from sandboxd_proto.errors import SandboxdError

READY_S = 30.0


class Making(msgspec.Struct, frozen=True):
    """The decisions about one container. `owner`: the init's user on this machine."""

    spec: SandboxSpec
    places: MountPlan
    mounts: Sequence[ContainerMount]
    frame: ContainerContext
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
            shutil.copyfile(binary.PATH, self._init)
            os.chmod(self._init, 0o555)

    @asynccontextmanager
    async def open(self, making: Making) -> AsyncIterator[Sandbox]:
        """LaunchFailed if the init does not come up; EngineError if the engine refuses."""
        name = new_name()
        checks = inode_checks(making.mounts)
        step = Handshake(self._parent, name, self._init, making.owner)
        try:
            mounts = [*making.mounts, ContainerBind(step.folder, INSIDE)]
            body = create_body(making.spec, mounts, ContainerEntry(ENTRY), making.frame)
            async with self._containers.created(body, name) as container:
                await self._engine.start(container)
                control, peer = await step.answered(
                    container, making.owner.uid, lambda: self._ended(container)
                )
                with control:
                    inner = InitSandbox(
                        control, filter_for=lambda command: filter_for(making.spec, command),
                        counts="root" if making.owner.uid == 0 else "container",
                        verify=lambda: paths_hold(making.spec),
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

            async def make(socket_requests: Sequence[SocketRequest]) -> list[socket.socket]:
                return await self._helpers.sockets(container, making.frame, socket_requests, stack)

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
            return f"the container ended while the command ran: {error.message}"
        except EngineError:
            return "the engine ended the container while the command ran (removed or restarted)"
        return None


async def _set_up(inner: InitSandbox, making: Making, checks: list[wire.Check]) -> None:
    with ExitStack() as held:
        abi = making.landlock_abi
        ruleset = held.enter_context(confinement.ruleset(abi)) if abi else None
        flags = wire.SetupFlag.WATCH_MOUNTS | wire.SetupFlag.REQUIRE_PID1 | wire.SetupFlag.SET_GID
        flags |= unix_peers.setup_flags(making.spec)
        if making.spec.network.kind == "deny":
            flags |= wire.SetupFlag.NOTIFY
        setup = wire.Setup(
            flags=flags | (wire.SetupFlag.HAS_RULESET if ruleset else wire.SetupFlag(0)),
            checks=checks,
            rules=confinement.rules(making.places, abi) if ruleset else (),
            sockets=unix_peers.named_sockets(making.spec),
        )
        try:
            with anyio.fail_after(READY_S):
                # The engine counts every process of the container.
                counts = making.spec.limits is not None and making.spec.limits.processes is not None
                descriptor = ruleset.fileno() if ruleset else None
                await inner.set_up(setup, descriptor, prefork=not counts)
        except SetupRefused as refused:
            raise LaunchFailed(str(refused) or "the container's init ended") from None
        except (TimeoutError, OSError) as error:
            raise LaunchFailed(f"no answer from the container's init: {error}") from None
        except codec.InitProtocolViolation as lie:
            raise LaunchFailed(f"protocol violation by the init: {lie}") from None
