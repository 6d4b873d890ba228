"""The opensandbox backend: sandboxes of a server that runs them on Docker or on a cluster.

Commands run below our init, which is uploaded into each sandbox, or are execd's own: then there is
no stdin, no terminal, output by lines, and exit codes without signals.
"""

from __future__ import annotations

import logging
import os
import shlex
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING

import anyio
from anyio.abc import TaskGroup
from msgspec.structs import replace

from sandboxd.backends.interface import Available, Capabilities, Enforcement, Probe, Unavailable
from sandboxd.backends.opensandbox.copies.packing import CopyLimits
from sandboxd.backends.opensandbox.copies.scope import CopyScope
from sandboxd.backends.opensandbox.copies.workspace_copy import CopyThreads, WorkspaceCopy
from sandboxd.backends.opensandbox.diagnosis import in_words
from sandboxd.backends.opensandbox.enforcement import tiers
from sandboxd.backends.opensandbox.execd import Execd
from sandboxd.backends.opensandbox.execd_files import ExecdFiles
from sandboxd.backends.opensandbox.http_client import HttpClient, HttpTarget, origin
from sandboxd.backends.opensandbox.key import load_key
from sandboxd.backends.opensandbox.lifecycle import Lifecycle
from sandboxd.backends.opensandbox.process import ExecdProcess
from sandboxd.backends.opensandbox.sandboxes import CLOSE_S, RemoteSandbox, RemoteSandboxes
from sandboxd.backends.opensandbox.spec import create_body
from sandboxd.backends.opensandbox.volume_checks import are_unchanged, check_volumes
from sandboxd.config.config import OpenSandboxConfig
from sandboxd.policy.plan import Plan, SandboxSpec
from sandboxd.types import Command, Process, Sandbox, Stdio
from sandboxd_proto.errors import PolicyNotSupported, SandboxdError, SandboxUnavailable

if TYPE_CHECKING:
    from sandboxd.backends.opensandbox.remote_init.sandbox import RemoteInit

log = logging.getLogger(__name__)
REMEMBER_S = 30.0
_LOOPBACK = {"localhost", "127.0.0.1", "::1"}


class OpenSandbox:
    name = "opensandbox"

    def __init__(self, config: OpenSandboxConfig, *, owner: str) -> None:
        self._config = config
        self._with_init = config.way != "execd" and sys.platform == "linux"
        self.capabilities = Capabilities(
            mounts=True, limits_sandbox=True, stdin=self._with_init, terminals=self._with_init,
            stderr_apart=False,
            copies=True, remote=True,
        )  # fmt: skip
        self._http = HttpClient(config.url.rstrip("/"), os.path.expanduser(config.ca_file))
        self._api: Lifecycle | None = None
        self._sandboxes: RemoteSandboxes | None = None
        self._owner = owner
        self._tasks: TaskGroup | None = None
        self._trouble = ""  # of the last sandbox that did not come up
        self._no_policies: tuple[float, PolicyNotSupported] | None = None
        self._threads = CopyThreads(config.transfer_secs)

    # the life of the daemon

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Leftovers of an earlier daemon are deleted at the start, this daemon's at the end."""
        try:
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                tasks.start_soon(self._sweep)
                yield
                tasks.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(CLOSE_S):
                if self._sandboxes is not None:
                    await self._sandboxes.sweep()
            await self._http.close()

    async def _sweep(self) -> None:
        try:
            _, sandboxes = self._connected()
        except SandboxdError as error:
            log.warning("opensandbox: %s", error.message)
            return
        await sandboxes.keep_swept(sandboxes.reap)

    def _connected(self) -> tuple[Lifecycle, RemoteSandboxes]:
        """SandboxUnavailable where URL or key cannot be used."""
        try:
            origin(self._config.url)
        except ValueError as error:
            raise SandboxUnavailable(
                f"[opensandbox] url cannot be used: {error}",
                remedy='set [opensandbox] url = "https://HOST:PORT"',
            ) from None
        if self._api is None or self._sandboxes is None:
            self._api = Lifecycle(self._http, load_key(self._config))
            self._sandboxes = RemoteSandboxes(self._api, self._owner, self._tasks)
        return self._api, self._sandboxes

    # what every backend has

    async def probe(self) -> Probe:
        """Ask for the version, and for a list, which takes the key. No sandbox is made: on a
        cluster that takes seconds and costs."""
        try:
            api, _ = self._connected()
            api.key = load_key(self._config)
            with in_words(self._config.image):
                version = await api.version()
                await api.find({"sandboxd-owner": self._owner})
        except SandboxdError as error:
            return Unavailable(error.message, error.remedy or "")
        where = f"sandboxes of the OpenSandbox server {version} at {self._config.url}"
        layers = (where, "isolation by the server's runtime, which its API does not name")
        return Available(layers, tuple(self._warnings()))

    def _warnings(self) -> list[str]:
        found = [
            "opensandbox: no explain; commands can reach the sandbox's execd, which obeys them"
        ]
        if not self._with_init:
            found = [
                "opensandbox: no stdin, no terminals, no explain; output by lines; "
                "system calls are filtered by the server's runtime alone"
            ]
        scheme, host, _ = origin(self._config.url)
        if scheme == "http" and host not in _LOOPBACK:
            found.append("opensandbox: the API key travels unencrypted, url is http://")
        if not self._config.image:
            found.append("opensandbox: no [opensandbox] image: each manifest has to name one")
        if not self._config.host_volumes:
            found.append(
                "opensandbox: granted folders are copied to the server before a command, and what "
                "it changed is copied back"
            )
        if self._trouble:
            found.append(f"opensandbox: the last sandbox did not come up: {self._trouble}")
        return found

    def enforcement(self, plan: Plan) -> Enforcement:
        """Only the server knows whether it has network policies: what it said is remembered."""
        if plan.sandbox.network.kind != "inherit" and self._no_policies is not None:
            since, refusal = self._no_policies
            if time.monotonic() - since < REMEMBER_S:
                raise PolicyNotSupported(
                    refusal.message, field=refusal.field, remedy=refusal.remedy
                )
        return tiers(plan, host_volumes=self._config.host_volumes, with_init=self._with_init)

    def command_line(self, plan: Plan) -> list[str]:
        volumes = self._config.host_volumes
        body = create_body(plan.sandbox, self._config.image, {}, host_volumes=volumes)
        return ["POST", f"{self._config.url}/v1/sandboxes", shlex.quote(str(body))]

    def open(self, spec: SandboxSpec) -> AbstractAsyncContextManager[Sandbox]:
        return self._open(spec)

    @asynccontextmanager
    async def _open(self, spec: SandboxSpec) -> AsyncIterator[Sandbox]:
        api, sandboxes = self._connected()
        image = spec.image or self._config.image
        if not image:
            raise SandboxUnavailable(
                "no image is configured for sandboxes of the OpenSandbox server",
                remedy="set [opensandbox] image, or name one in the manifest",
            )
        start_s, volumes = self._config.start_secs, self._config.host_volumes
        entered = False
        try:
            with in_words(image):
                async with sandboxes.created(
                    lambda metadata: create_body(spec, image, metadata, host_volumes=volumes),
                    start_s,
                ) as made:
                    target = await api.execd(made.id, via_server=self._config.via_server)
                    execd = Execd(self._http, target, made.check)
                    await execd.wait_ready(start_s)
                    if volumes:
                        await check_volumes(execd, spec)
                    copy = None if volumes else self._copy(spec, execd, target)
                    async with self._init(execd, target) as init:
                        self._trouble, entered = "", True
                        yield OpenSandboxSandbox(made, execd, spec, self._tasks, copy, init)
        except SandboxdError as error:
            if not entered:
                self._trouble = error.message
                if isinstance(error, PolicyNotSupported) and error.field == "network":
                    self._no_policies = time.monotonic(), error
            raise

    @asynccontextmanager
    async def _init(self, execd: Execd, target: HttpTarget) -> AsyncIterator[RemoteInit | None]:
        if not self._with_init:
            yield None
            return
        # On Linux only.
        from sandboxd.backends.opensandbox.remote_init.sandbox import RemoteInit

        assert self._tasks is not None, "sandboxes are opened while the daemon serves"
        files = ExecdFiles(self._http, target, self._config.transfer_secs)
        async with RemoteInit(execd, files, self._tasks).started(self._config.start_secs) as init:
            yield init

    def _copy(self, spec: SandboxSpec, execd: Execd, target: HttpTarget) -> WorkspaceCopy | None:
        scope, settings = CopyScope.of(spec), CopyScope.of_settings(spec)
        if not scope.grants:
            return None
        files = ExecdFiles(self._http, target, self._config.transfer_secs)
        limits = CopyLimits(self._config.copy_max_bytes, self._config.copy_max_files)
        return WorkspaceCopy(execd, files, scope, settings, limits, self._threads)


class OpenSandboxSandbox:
    def __init__(
        self, made: RemoteSandbox, execd: Execd, spec: SandboxSpec, tasks: TaskGroup | None,
        copy: WorkspaceCopy | None, init: RemoteInit | None,
    ) -> None:  # fmt: skip
        self._init = init
        self.oom_kills = 0
        self.execd = execd
        self.copy = copy
        self._made = made
        self._spec = spec
        self._tasks = tasks

    @property
    def alive(self) -> bool:
        return self._made.alive and (self._init is None or self._init.alive)

    def verify(self) -> bool:
        return self.alive and are_unchanged(self._spec)

    async def end(self) -> bool:
        return await self._made.end()

    def spawn_now(self, command: Command, stdio: Stdio | None) -> Process | None:
        return None

    async def spawn(self, command: Command, stdio: Stdio | None) -> Process:
        if stdio is None and self._init is None:
            raise PolicyNotSupported(
                "execd has no terminals", field="pty", remedy="run it without a terminal"
            )
        if not self.alive:
            raise SandboxUnavailable("the sandbox is gone from the server")
        assert self._tasks is not None, "commands run while the daemon serves"
        if self.copy is not None:
            with in_words(self._spec.image or ""):
                await self.copy.send(command.progress)
        alone = not command.keep_background
        if self._init is not None:
            return await self._spawn_below(self._init, command, stdio, alone=alone)
        assert stdio is not None
        process = ExecdProcess(self, command, stdio, alone=alone)
        self._tasks.start_soon(process.run)
        return process

    async def _spawn_below(
        self, init: RemoteInit, command: Command, stdio: Stdio | None, *, alone: bool
    ) -> Process:
        from sandboxd.backends.opensandbox.remote_init.process import RemoteInitProcess

        assert self._tasks is not None
        # The init need not watch what the container holds.
        told = replace(command, limits=replace(command.limits, memory_bytes=None))
        try:
            inner = await init.spawn(told, stdio)
        except BaseException:
            if self.copy is not None:
                self.copy.end()
            raise
        return RemoteInitProcess(self, init.link, inner, command, self._tasks, alone=alone)
