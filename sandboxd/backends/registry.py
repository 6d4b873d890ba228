"""Every backend that this daemon knows: one line of `BACKENDS` and one package each.

A package has `make(context) -> Backend`. It is imported only where its platform is the daemon's.
"""

from __future__ import annotations

import importlib
import os
import shutil
import sys
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import msgspec

from sandboxd.backends.interface import Backend, BackendContext, Serving
from sandboxd.backends.unavailable import UnavailableBackend
from sandboxd.config.config import Config, check_known
from sandboxd_proto.messages.server import BackendUse

_SYSTEMS = {"linux": "Linux", "darwin": "macOS", "win32": "Windows"}


class BackendEntry(msgspec.Struct, frozen=True):
    """`package`: None where this version has none. `platform`: "" where every platform has it.
    `automatic`: tried, in the order of the entries, for a request that names no backend.
    `programs`: what it starts; no sandbox may write them."""

    name: str
    package: str | None
    platform: str = ""
    automatic: bool = False
    programs: tuple[str, ...] = ()

    @property
    def is_here(self) -> bool:
        return self.platform in ("", sys.platform)


# fmt: off
BACKENDS = (
    BackendEntry("bubblewrap", "sandboxd.backends.bubblewrap", "linux", True, ("bwrap",)),
    BackendEntry("landlock", "sandboxd.backends.landlock", "linux", True),
    BackendEntry("docker", "sandboxd.backends.docker", "linux"),
    BackendEntry("none", "sandboxd.backends.unsandboxed.linux", "linux"),
    BackendEntry("none", "sandboxd.backends.unsandboxed.windows", "win32"),
    BackendEntry("opensandbox", "sandboxd.backends.opensandbox"),
    BackendEntry("sandbox-exec", "sandboxd.backends.sandbox_exec", "darwin", True),
    BackendEntry("appcontainer", "sandboxd.backends.appcontainer", "win32", True),
)
# fmt: on


class Registry:
    """`automatic`: the names that are tried for a request that names none, best first. `elsewhere`:
    those of other systems."""

    def __init__(
        self, backends: Iterable[Backend], automatic: Sequence[str] = (),
        elsewhere: Iterable[str] = (),
    ) -> None:  # fmt: skip
        self._by_name = {backend.name: backend for backend in backends}
        self._elsewhere = frozenset(elsewhere)
        self.automatic = tuple(name for name in automatic if name in self._by_name)

    def __getitem__(self, name: str) -> Backend:
        return self._by_name[name]

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    def names(self) -> list[str]:
        return list(self._by_name)

    def use_of(self, name: str) -> BackendUse:
        if name in self._elsewhere:
            return "elsewhere"
        return "automatic" if name in self.automatic else "named"

    def limit_sandboxes(self) -> frozenset[str]:
        """The backends that make a sandbox with its limits."""
        return frozenset(n for n, one in self._by_name.items() if one.capabilities.limits_sandbox)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Around everything that uses them: some have connections and leftovers to look after."""
        async with AsyncExitStack() as stack:
            for backend in self._by_name.values():
                if isinstance(backend, Serving):
                    await stack.enter_async_context(backend.serving())
            yield


def registry(context: BackendContext, entries: Sequence[BackendEntry] = BACKENDS) -> Registry:
    automatic = [entry.name for entry in entries if entry.automatic and entry.is_here]
    here = {entry.name for entry in entries if entry.is_here}
    shown = [entry for entry in entries if entry.is_here or entry.name not in here]
    elsewhere = [entry.name for entry in shown if not entry.is_here]
    return Registry([_make(entry, context) for entry in shown], automatic, elsewhere)


def _make(entry: BackendEntry, context: BackendContext) -> Backend:
    if entry.package is None or not entry.is_here:
        system = _SYSTEMS.get(entry.platform, "no platform of this version")
        return UnavailableBackend(
            entry.name, f"the backend {entry.name} works on {system} only",
            'leave "backend" out: the daemon then uses what works on this platform',
        )  # fmt: skip
    made: Backend = importlib.import_module(entry.package).make(context)
    return made


def check_names(config: Config, entries: Sequence[BackendEntry] = BACKENDS) -> None:
    """ConfigError where the config names a backend that does not exist."""
    # A name may have an entry for each platform.
    names = list(dict.fromkeys(entry.name for entry in entries))
    check_known(config.backend, ["auto", *names], "backend", "backend")
    for name in config.ceiling.backends or ():
        check_known(name, names, "ceiling.backends", "backend")


def programs(entries: Sequence[BackendEntry] = BACKENDS) -> list[str]:
    """Where the programs are that backends of this platform start."""
    path = os.environ.get("PATH") or os.defpath
    names = [name for entry in entries if entry.is_here for name in entry.programs]
    return [found for name in names if (found := shutil.which(name, path=path))]
