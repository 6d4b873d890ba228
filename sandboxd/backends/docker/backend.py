"""The Docker backend: one container for each sandbox, on a local or a remote engine.

There are two ways with the same behaviour. Where the engine shares this machine's files, our init
is the entry point (with_init/); elsewhere the command runs over the engine's attach API (attach/).
The backend finds out which way works by trying, once for each engine.
"""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import anyio
from msgspec.structs import replace

from sandboxd.backends.docker import diagnosis
from sandboxd.backends.docker.attach.sandbox import ENTRY as ATTACHED_ENTRY
from sandboxd.backends.docker.attach.sandbox import AttachSandboxes
from sandboxd.backends.docker.containers import Containers
from sandboxd.backends.docker.endpoint import find
from sandboxd.backends.docker.enforcement import Way, container_tiers, no_gate
from sandboxd.backends.docker.engine import Engine, EngineError, EngineInfo
from sandboxd.backends.docker.mountpoints import Mountpoints
from sandboxd.backends.docker.mounts import (
    ContainerMount,
    ContainerMountSources,
    container_mount_plan,
    mounts,
)
from sandboxd.backends.docker.spec import (
    ContainerContext,
    ContainerEntry,
    command_line,
    create_body,
)
from sandboxd.backends.docker.with_init.handshake import ENTRY
from sandboxd.backends.docker.with_init.sandbox import Making, WithInit
from sandboxd.backends.interface import Available, Capabilities, Enforcement, Probe, Unavailable
from sandboxd.backends.linux_context import LinuxSupport, root_warnings
from sandboxd.backends.owner_identity import supervisor_identity
from sandboxd.config.config import DockerConfig
from sandboxd.linux.init_client.launch import LaunchFailed
from sandboxd.linux.landlock import kernel_abi
from sandboxd.linux.mountinfo import mount_points
from sandboxd.policy.mounts.mount_plan import Mount, MountKind, MountPlan
from sandboxd.policy.plan import Limits, NetworkRule, Plan, RunAs, SandboxSpec
from sandboxd.types import Sandbox
from sandboxd_proto.errors import SandboxdError

log = logging.getLogger(__name__)
_TRIVIAL = SandboxSpec(base="minimal", network=NetworkRule("deny"), limits=Limits())
CLOSE_S = 10.0


class Docker:
    name = "docker"

    def __init__(
        self, support: LinuxSupport, config: DockerConfig, *, socket_path: str, expected: bool
    ) -> None:
        """`expected`: the config names docker, so the engine is contacted at the start."""
        self._support = support
        self._config = config
        self._expected = expected
        self._engine = Engine(find(config.host, os.environ))
        self._containers = Containers(self._engine, supervisor_identity(socket_path))
        self._with_init = WithInit(self._containers, support)
        self._attached = AttachSandboxes(self._containers)
        self._mountpoints = Mountpoints(support.state)
        self._facts: EngineInfo | None = None
        self._identity = ""
        self._way: Way | None = None if config.way == "auto" else config.way
        self._landlock_abi = kernel_abi()
        self._first = anyio.Lock()
        self._pulling: dict[str, anyio.Lock] = {}

    # the life of the daemon

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Removes containers of an earlier daemon at the start, and its own at the end.

        The engine is not contacted before the first request for docker.
        """
        try:
            async with anyio.create_task_group() as tasks:
                self._attached.tasks = tasks
                tasks.start_soon(self._containers.keep_swept)
                if self._expected:
                    tasks.start_soon(self._acquaint)
                yield
                tasks.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(CLOSE_S):
                await self._containers.sweep()
                await self._engine.close()

    async def _acquaint(self) -> None:
        """Find the way before the first request: it decides what can be enforced."""
        try:
            await self._met()
            with diagnosis.in_words(self._config.image):
                await self._find_way()
        except SandboxdError as error:
            log.info("docker: %s", error.message)

    async def _met(self) -> EngineInfo:
        """The engine's facts. On the first contact, containers of an earlier daemon are removed."""
        async with self._first:
            if self._facts is None:
                with diagnosis.in_words(self._config.image):
                    facts = await self._engine.facts()
                    await self._containers.reap()
                if facts.identity != self._identity and self._config.way == "auto":
                    self._way = None  # another engine may need the other way
                self._facts, self._identity = facts, facts.identity
            return self._facts

    # the backend interface

    @property
    def capabilities(self) -> Capabilities:
        """What the init records is too much for an engine's streams."""
        init = self._likely_way() == "init"
        return Capabilities(
            mounts=True,
            explains=init,
            files=init,
            session_tmp=init,
            limits_sandbox=True,
            stderr_apart=init,
        )

    async def probe(self) -> Probe:
        try:
            self._facts = None
            async with self.open(_TRIVIAL):
                return Available(self._layers(), self._warnings())
        except SandboxdError as error:
            return Unavailable(error.message, error.remedy or "")

    def enforcement(self, plan: Plan) -> Enforcement:
        return container_tiers(plan, self._likely_way())

    def command_line(self, plan: Plan) -> list[str]:
        spec = plan.sandbox
        places = self._layout(spec)
        entry = ContainerEntry(ENTRY if self._likely_way() == "init" else ATTACHED_ENTRY)
        made = self._mounts(spec, places)
        return command_line(create_body(spec, made, entry, self._frame(spec)))

    def open(self, spec: SandboxSpec) -> AbstractAsyncContextManager[Sandbox]:
        return self._open(spec)

    @asynccontextmanager
    async def _open(self, spec: SandboxSpec) -> AsyncIterator[Sandbox]:
        await self._met()
        if self._containers.left:
            await self._containers.sweep()
        with diagnosis.in_words(self._image(spec)):
            if self._config.pull:
                await self._pull(self._image(spec))
            if self._way is None:
                await self._find_way()
            if self._way == "attach":
                if spec.network.kind == "allow_hosts":
                    raise no_gate()  # the way was not known yet when the plan was checked
                places = self._layout(replace(spec, base="minimal"))
                made = self._mounts(spec, places)
                async with self._attached.sandbox(spec, made, self._frame(spec)) as sandbox:
                    yield sandbox
                return
            async with self._opened(spec) as sandbox:
                yield sandbox

    async def _pull(self, image: str) -> None:
        """Once for all that wait for the same image."""
        if await self._engine.has_image(image):
            return
        lock = self._pulling.setdefault(image, anyio.Lock())
        try:
            async with lock:
                if not await self._engine.has_image(image):
                    await self._engine.pull(image)
        finally:
            self._pulling.pop(image, None)

    @asynccontextmanager
    async def _opened(self, spec: SandboxSpec) -> AsyncIterator[Sandbox]:
        places = self._layout(spec)
        making = Making(
            spec=spec, places=places, mounts=self._mounts(spec, places), frame=self._frame(spec),
            owner=self._owner(spec), landlock_abi=self._landlock_abi,
        )  # fmt: skip
        async with self._with_init.open(making) as sandbox:
            yield sandbox

    async def _find_way(self) -> None:
        """Try a container with the init; if the engine does not share our files, use attach."""
        async with self._first:
            if self._way is not None:
                return
            try:
                async with self._opened(_TRIVIAL):
                    self._way = "init"
            except LaunchFailed as failed:
                if self._landlock_abi and "landlock" in str(failed):
                    # An engine's own filter may refuse the calls; the mounts are there without it.
                    self._landlock_abi = 0
                    async with self._opened(_TRIVIAL):
                        self._way = "init"
                    return
                log.info("docker: no init in containers of this engine (%s)", failed)
                self._way = "attach"
            except EngineError as error:
                if not diagnosis.is_foreign(error):
                    raise
                log.info("docker: this engine does not share our files (%s)", error.message)
                self._way = "attach"

    # what a container is made from

    def _likely_way(self) -> Way:
        return self._way or ("init" if self._engine.endpoint.socket else "attach")

    def _image(self, spec: SandboxSpec) -> str:
        return spec.image or self._config.image

    def _layout(self, spec: SandboxSpec) -> MountPlan:
        """The engine's socket never shows, whatever a caller allows: it is the host's root."""
        places = container_mount_plan(spec, self._support.host)
        socket = self._engine.endpoint.socket
        if socket is not None and places.shows_host(os.path.realpath(socket)):
            mask = Mount(os.path.realpath(socket), MountKind.MASK, is_dir=False)
            return MountPlan([*places.places, mask]) if os.path.exists(mask.path) else places
        return places

    def _mounts(self, spec: SandboxSpec, places: MountPlan) -> list[ContainerMount]:
        around = ContainerMountSources(
            # An engine elsewhere does not have this machine's files: there /tmp is fresh.
            shared_tmp=spec.shared_tmp if self._likely_way() == "init" else None,
            empty_file=self._support.state.empty_file,
            empty_dir=self._support.state.empty_dir,
            mountpoints=self._mountpoints,
            root=tuple(sorted(os.listdir("/"))),
            submounts=mount_points(),
            engine_root=self._facts.data_root if self._facts is not None else "",
            names=self._support.names(spec.network),
        )
        return mounts(places, around)

    def _frame(self, spec: SandboxSpec) -> ContainerContext:
        owner = self._owner(spec)
        facts = self._facts
        rootless = facts is not None and facts.rootless
        return ContainerContext(
            image=self._image(spec),
            # A rootless engine maps its root to its user; other users do not exist there.
            user=RunAs(0, 0) if rootless else owner,
            rootless=rootless,
            podman=facts is not None and facts.podman,
            labels=self._containers.labels,
            userns_host=facts is not None and facts.userns_remap,
        )

    def _owner(self, spec: SandboxSpec) -> RunAs:
        return spec.run_as or RunAs(os.getuid(), os.getgid())

    def _layers(self) -> tuple[str, ...]:
        assert self._facts is not None
        found = [f"containers of the engine {self._facts.version} at {self._engine.endpoint.url}"]
        if any("seccomp" in option for option in self._facts.security):
            found.append("the engine's seccomp profile")
        if self._way == "attach":
            return (*found, "our init inside, over the engine's attach API", "seccomp filters")
        found += ["our init inside", "seccomp filters"]
        return (*found, f"Landlock ABI {self._landlock_abi}") if self._landlock_abi else (*found,)

    def _warnings(self) -> tuple[str, ...]:
        found: list[str] = []
        if self._way == "attach":
            found.append(
                "docker: this engine does not share this machine's sockets: no warm or persistent "
                "sandboxes, no allow_hosts, no explain"
            )
        return (*found, *root_warnings())
