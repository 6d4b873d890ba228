"""Every backend that this daemon knows, by name. A new one is added here and nowhere else."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from sandboxd.backends.absent import Absent
from sandboxd.backends.interface import Backend
from sandboxd.backends.support import LinuxSupport
from sandboxd.config import Config, both_keys


class Registry:
    def __init__(self, backends: list[Backend]) -> None:
        self._by_name = {backend.name: backend for backend in backends}

    def __getitem__(self, name: str) -> Backend:
        return self._by_name[name]

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    def names(self) -> list[str]:
        return list(self._by_name)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Around everything that uses them: some have connections and leftovers to look after."""
        async with AsyncExitStack() as stack:
            for backend in self._by_name.values():
                serving = getattr(backend, "serving", None)
                if serving is not None:
                    await stack.enter_async_context(serving())
            yield


def registry(config: Config, support: LinuxSupport | None, socket_path: str) -> Registry:
    """`socket_path`: tells this daemon from others that use the same engine."""
    backends: list[Backend] = []
    if sys.platform == "linux" and support is not None:
        from sandboxd.backends.bubblewrap import Bubblewrap
        from sandboxd.backends.docker import Docker
        from sandboxd.backends.landlock import Landlock
        from sandboxd.backends.unsandboxed import Unsandboxed

        none = Unsandboxed(support, permitted=both_keys(config))
        expected = config.backend == "docker" or "docker" in (config.ceiling.backends or ())
        docker = Docker(support, config.docker, socket_path=socket_path, expected=expected)
        backends += [Bubblewrap(support), Landlock(support), docker, none]
    known = {backend.name for backend in backends}
    elsewhere = [absent for absent in _elsewhere(config) if absent.name not in known]
    return Registry([*backends, *elsewhere])


def _elsewhere(config: Config) -> list[Absent]:
    return [
        Absent("docker", "the docker backend runs on Linux only", "use the local sandbox"),
        Absent("opensandbox", *_opensandbox_reason(config)),
        Absent("sandbox-exec", "sandbox-exec exists on macOS only", "use bubblewrap on Linux"),
        Absent("appcontainer", "AppContainer exists on Windows only", "use bubblewrap on Linux"),
    ]


def _opensandbox_reason(config: Config) -> tuple[str, str]:
    if not config.opensandbox.url:
        return (
            "no OpenSandbox server is configured",
            'set [opensandbox] url = "http://…" and api_key_file in the config',
        )
    return (
        f"the OpenSandbox server at {config.opensandbox.url} cannot be used by this version",
        "set SANDBOXD_BACKEND=auto for the local sandbox",
    )
