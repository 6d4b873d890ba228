"""The backend `none` on Linux: no isolation, and a scrubbed environment.

Commands still run below our init, so that reports, limits and the end of the whole process tree
are the same as everywhere.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from sandboxd.backends.enforcement import no_tiers
from sandboxd.backends.interface import BackendContext, Capabilities, Enforcement
from sandboxd.backends.linux_context import LinuxSupport
from sandboxd.backends.unsandboxed.base import Unsandboxed
from sandboxd.backends.unsandboxed_keys import both_keys
from sandboxd.linux.init_client import messages as wire
from sandboxd.linux.init_client.launch import Launch, LaunchFailed, launch
from sandboxd.linux.seccomp import FilterSpec
from sandboxd.policy.plan import Plan, SandboxSpec
from sandboxd.types import Sandbox
from sandboxd_proto.errors import SandboxUnavailable

_NO_FILTER = FilterSpec(level="inherit", restrict_families=False, unconfined=True)


def make(context: BackendContext) -> UnsandboxedLinux:
    return UnsandboxedLinux(context.support, permitted=both_keys(context.config))


class UnsandboxedLinux(Unsandboxed):
    capabilities = Capabilities(isolates=False, files=True)

    def __init__(self, support: LinuxSupport, *, permitted: bool) -> None:
        super().__init__(permitted=permitted)
        self._support = support

    def enforcement(self, plan: Plan) -> Enforcement:
        return no_tiers(plan, self._support.cgroups)

    def command_line(self, plan: Plan) -> list[str]:
        return ["sandboxd-init"]

    def open(self, spec: SandboxSpec) -> AbstractAsyncContextManager[Sandbox]:
        return self._open(spec)

    @asynccontextmanager
    async def _open(self, spec: SandboxSpec) -> AsyncIterator[Sandbox]:
        self._warn()
        init = self._support.init
        plan = Launch(
            argv=[f"/proc/self/fd/{init}"],
            inherit=[init],
            setup=wire.Setup(),
            ruleset=None,
            filter_for=lambda _: _NO_FILTER,
            counts="root" if os.getuid() == 0 else "user",
            verify=lambda: True,
            cgroups=self._support.cgroups,
        )
        try:
            async with launch(plan, lambda: None) as sandbox:
                yield sandbox
        except LaunchFailed as failed:
            raise SandboxUnavailable(f"the init could not be started: {failed}") from None
