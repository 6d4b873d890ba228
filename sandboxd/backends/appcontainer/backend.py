"""The backend `appcontainer`: fails closed wherever it cannot verify.

A sandbox has an AppContainer profile of its own. Files are granted to capability SIDs, which the
sandbox's commands have and no others. Every change of an access list is journalled before it is
made, and read back before anything runs.
"""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress

import anyio

from sandboxd.backends.appcontainer.attempt import attempt
from sandboxd.backends.appcontainer.enforcement import LOOPBACK, tiers
from sandboxd.backends.appcontainer.probe import CachedProbe, prepared
from sandboxd.backends.appcontainer.sandbox import AppContainerSandbox, AppIdentity
from sandboxd.backends.interface import Capabilities, Enforcement, Probe, Unavailable
from sandboxd.backends.windows_context import ELEVATED, WindowsSupport
from sandboxd.platform.windows.paths import internal
from sandboxd.policy.plan import Plan, SandboxSpec
from sandboxd.types import Sandbox
from sandboxd.windows.access_lists.acl_plan import INHERITED, WRITE, AclEntry, AclPlan, acl_plan
from sandboxd.windows.access_lists.acls import AclStore
from sandboxd.windows.access_lists.granting import GrantError, apply
from sandboxd.windows.access_lists.journal import Journal, recover
from sandboxd.windows.access_lists.owners import current_owner, is_alive
from sandboxd.windows.app_containers.host_access import missing_preparation
from sandboxd.windows.app_containers.packages import NETWORK_CAPABILITIES, package_sid, profile_name
from sandboxd.windows.app_containers.profiles import ProfileError, create_profile
from sandboxd.windows.processes import console
from sandboxd_proto.errors import SandboxUnavailable

assert sys.platform == "win32"

log = logging.getLogger(__name__)


class AppContainer:
    name = "appcontainer"
    capabilities = Capabilities(
        inherit_warning=LOOPBACK,
        terminals=console.VERIFIED,
        terminal_refusal=console.REFUSAL,
    )

    def __init__(self, support: WindowsSupport) -> None:
        self._support = support
        self._store = AclStore()
        self._journal: Journal | None = None
        self._secret = secrets.token_hex(16)
        self._probe = CachedProbe(lambda: attempt(self))

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Takes back what killed daemons left; at the end, what this one wrote."""
        folder = os.path.join(self._support.folder, "journals")
        await anyio.to_thread.run_sync(lambda: recover(folder, is_alive, self._store))
        self._journal = Journal(folder, current_owner())
        try:
            yield
        finally:
            journal, self._journal = self._journal, None
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(journal.undo_all, self._store)
            journal.close()

    async def probe(self) -> Probe:
        if self._support.refuses:
            return Unavailable(*ELEVATED)
        found, lacking = await self._probe(), await anyio.to_thread.run_sync(missing_preparation)
        return prepared(found, lacking, elevated=self._support.elevated)

    def enforcement(self, plan: Plan) -> Enforcement:
        return tiers(plan)

    def command_line(self, plan: Plan) -> list[str]:
        return ["CreateProcessW"]

    def open(self, spec: SandboxSpec) -> AbstractAsyncContextManager[Sandbox]:
        return self._open(spec)

    @asynccontextmanager
    async def _open(self, spec: SandboxSpec) -> AsyncIterator[Sandbox]:
        self._support.check_elevation()
        journal = self._journal
        if journal is None:
            raise SandboxUnavailable("the daemon does not serve any more")
        name = profile_name(secrets.token_hex(16))
        temporary = os.path.join(self._support.folder, "tmp", name)
        profile = journal.announce("profile", name)
        try:
            try:
                made = await anyio.to_thread.run_sync(self._prepare, spec, name, temporary, journal)
            except (ProfileError, GrantError, OSError) as error:
                raise SandboxUnavailable(
                    f"no AppContainer could be made: {error}",
                    remedy="`sandboxctl doctor` says what an administrator has to prepare",
                ) from None
            yield AppContainerSandbox(self._support, made, temporary)
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(lambda: shutil.rmtree(temporary, True))
                with suppress(OSError):
                    await anyio.to_thread.run_sync(journal.undo, profile, self._store)

    def _prepare(
        self, spec: SandboxSpec, name: str, temporary: str, journal: Journal
    ) -> AppIdentity:
        """In a thread: writing an access list walks everything below a folder."""
        package = create_profile(name)
        os.makedirs(temporary)
        wanted = acl_plan(spec, self._secret)
        own = AclEntry(internal(temporary), package, "allow", WRITE, INHERITED)
        apply(AclPlan((*wanted.entries, own), wanted.capabilities), self._store, journal)
        network = NETWORK_CAPABILITIES if spec.network.kind == "inherit" else ()
        return AppIdentity(package_sid(name), wanted.capabilities | frozenset(network))
