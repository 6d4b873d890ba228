"""The `none` backend: no isolation, a scrubbed environment, and a warning that stays visible.

It exists only behind two keys (`select`). Commands still run below our init, so that reports,
limits and the end of the whole process tree are the same as everywhere.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from sandboxd.backends.interface import Available, Enforcement, Probe, Unavailable
from sandboxd.backends.support import LinuxSupport
from sandboxd.backends.tiers import no_tiers
from sandboxd.linux import init_wire as wire
from sandboxd.linux.launch import Launch, LaunchFailed, launched
from sandboxd.linux.seccomp import FilterSpec
from sandboxd.policy.plan import Plan, SandboxSpec
from sandboxd.sandbox import Sandbox
from sandboxd_proto.errors import SandboxUnavailable

log = logging.getLogger(__name__)
WARN_EVERY_S = 60.0
_NO_FILTER = FilterSpec(level="inherit", restrict_families=False)


class Unsandboxed:
    name = "none"
    mounts = False

    def __init__(self, support: LinuxSupport, *, permitted: bool) -> None:
        self._support = support
        self._permitted = permitted
        self._warned_at: float | None = None

    async def probe(self) -> Probe:
        if not self._permitted:
            return Unavailable(
                "running without a sandbox needs two keys, and they are not both set",
                "leave it so; or start sandboxd with SANDBOXD_BACKEND=none and "
                "SANDBOXD_ALLOW_NO_SANDBOX=1 to accept NO isolation",
            )
        return Available((), ("commands run WITHOUT a sandbox: both keys for it are set",))

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
            root=True,  # RLIMIT_NPROC would count everything that the user runs on the host
            verify=lambda: True,
            cgroups=self._support.cgroups,
        )
        try:
            async with launched(plan, lambda: None) as sandbox:
                yield sandbox
        except LaunchFailed as failed:
            raise SandboxUnavailable(f"the init could not be started: {failed}") from None

    def _warn(self) -> None:
        now = time.monotonic()
        if self._warned_at is None or now - self._warned_at >= WARN_EVERY_S:
            self._warned_at = now
            log.warning("running a command WITHOUT a sandbox: both keys for it are set")
