"""The sandbox-exec backend: a profile for each command, our launcher, and a census of processes."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import anyio
from msgspec.structs import replace

from sandboxd.backends.gated import GatedSandbox
from sandboxd.backends.interface import Available, Capabilities, Enforcement, Probe, Unavailable
from sandboxd.backends.macos_context import MacSupport
from sandboxd.backends.sandbox_exec import diagnosis, probe
from sandboxd.backends.sandbox_exec.enforcement import sandbox_exec_tiers
from sandboxd.backends.sandbox_exec.log_reader import reading
from sandboxd.backends.sandbox_exec.profile_request import OwnParts, profile_for
from sandboxd.backends.sandbox_exec.sandbox import (
    SandboxExecSandbox,
    SharedServices,
    refuse_changed,
)
from sandboxd.linux.rootfs.private_folder import PrivateFolder, remove_stale
from sandboxd.macos.lifeline import Lifeline
from sandboxd.macos.logs import LogBook
from sandboxd.macos.profile import TAG_PREFIX, Profile
from sandboxd.macos.spawn import arguments
from sandboxd.policy.plan import NetworkRule, Plan, SandboxSpec
from sandboxd.posix.reaper import reaping
from sandboxd.types import Command, Sandbox
from sandboxd_proto.errors import SandboxUnavailable

assert sys.platform != "win32"

_TRIVIAL = SandboxSpec(base="minimal", network=NetworkRule("deny"))
_SHOWN = OwnParts(tag=TAG_PREFIX + "0" * 32, folder="/private/tmp/sandboxd-tmp-shown", launcher="")
PROXY_WARNING = (
    "allow_hosts on macOS works through a proxy only: programs that ignore http_proxy, "
    "https_proxy and all_proxy reach nothing"
)


class SandboxExec:
    name = "sandbox-exec"
    capabilities = Capabilities()

    def __init__(self, support: MacSupport) -> None:
        self._support = support
        self._system = support.system
        self._serving: SharedServices | None = None

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Around everything: the lifeline, the reader of the log, and trees that end late."""
        book = LogBook()
        lifeline = Lifeline(self._system.lifeline_module)
        try:
            with reading(self._system.log_command, book):
                async with reaping() as reaper, anyio.create_task_group() as tasks:

                    def end_later(end: Callable[[], Coroutine[Any, Any, None]]) -> None:
                        tasks.start_soon(end)

                    self._serving = SharedServices(self._system, reaper, lifeline, book, end_later)
                    await anyio.to_thread.run_sync(remove_stale)
                    try:
                        yield
                    finally:
                        self._serving = None
        finally:
            lifeline.close()

    async def probe(self) -> Probe:
        why = self._missing()
        if why is not None:
            return why
        try:
            async with self._opened(_TRIVIAL) as sandbox:
                fault = await probe.fault(
                    sandbox, self._support.state_folder, isolates=self._system.isolates
                )
        except SandboxUnavailable as error:
            return Unavailable(error.message, error.remedy or "")
        return fault or Available(self._layers(), _warnings())

    def _missing(self) -> Unavailable | None:
        if not os.access(self._system.sandbox_exec, os.X_OK):
            return diagnosis.NOT_INSTALLED
        if not os.access(self._system.launcher, os.X_OK):
            return diagnosis.NO_LAUNCHER
        return diagnosis.SANDBOXED if self._system.sandboxed(os.getpid()) else None

    def _layers(self) -> tuple[str, ...]:
        return (
            "files, network, services and signals by a profile of sandbox-exec",
            "limits by counting processes",
            self._system.layer,
        )

    def enforcement(self, plan: Plan) -> Enforcement:
        self._profile_shown(plan.sandbox)
        return sandbox_exec_tiers(plan, isolates=self._system.isolates)

    def command_line(self, plan: Plan) -> list[str]:
        """With the whole profile: it is what decides."""
        command = Command(
            argv=("COMMAND",), env=(), cwd=plan.cwd, limits=plan.limits,
            syscall_policy=plan.syscall_policy,
        )  # fmt: skip
        made = self._profile_shown(plan.sandbox)
        return arguments(self._system, made, command, plan.sandbox.run_as)

    def _profile_shown(self, spec: SandboxSpec) -> Profile:
        """As it will be, but for the tag, the folder and the proxy's port."""
        own = replace(
            _SHOWN,
            launcher=self._system.launcher,
            homes=self._support.homes,
            own_home=self._support.own_home,
            proxy_port=1,
        )
        return profile_for(spec, own, self._system.on_disk)

    def open(self, spec: SandboxSpec) -> AbstractAsyncContextManager[Sandbox]:
        return self._open(spec)

    @asynccontextmanager
    async def _open(self, spec: SandboxSpec) -> AsyncIterator[Sandbox]:
        why = self._missing()
        if why is not None:
            raise SandboxUnavailable(why.reason, remedy=why.remedy)
        refuse_changed(spec)
        if spec.network.kind != "allow_hosts":
            async with self._opened(spec) as sandbox:
                yield sandbox
            return
        async with (
            self._support.egress.proxy_gate(spec.network) as (gate, port),
            self._opened(spec, port) as sandbox,
        ):
            yield GatedSandbox(sandbox, gate)

    @asynccontextmanager
    async def _opened(
        self, spec: SandboxSpec, proxy_port: int | None = None
    ) -> AsyncIterator[SandboxExecSandbox]:
        if self._serving is None:
            raise SandboxUnavailable("the backend sandbox-exec is not running")
        folder = PrivateFolder(spec.run_as)
        sandbox = SandboxExecSandbox(
            spec, self._serving, folder=self._system.on_disk(folder.path),
            homes=self._support.homes, own_home=self._support.own_home, proxy_port=proxy_port,
        )  # fmt: skip
        try:
            yield sandbox
        finally:
            with anyio.CancelScope(shield=True):
                await sandbox.end()
                await anyio.to_thread.run_sync(folder.remove)


def _warnings() -> tuple[str, ...]:
    found = ["not verified on a real macOS: see SECURITY.md", PROXY_WARNING]
    if os.getuid() == 0:
        found.append(
            "sandboxd runs as root: a command runs as the owner of its workspace, in workspaces of "
            "root as root"
        )
    return tuple(found)
