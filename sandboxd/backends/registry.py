"""Every backend that this daemon knows, by name. A new one is added here and nowhere else."""

from __future__ import annotations

import os
import socket
import sys

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


def registry(config: Config, support: LinuxSupport | None) -> Registry:
    backends: list[Backend] = []
    if sys.platform == "linux" and support is not None:
        from sandboxd.backends.bubblewrap import Bubblewrap
        from sandboxd.backends.landlock import Landlock
        from sandboxd.backends.unsandboxed import Unsandboxed

        none = Unsandboxed(support, permitted=both_keys(config))
        backends += [Bubblewrap(support), Landlock(support), none]
    known = {backend.name for backend in backends}
    elsewhere = [absent for absent in _elsewhere(config) if absent.name not in known]
    return Registry([*backends, *elsewhere])


def _elsewhere(config: Config) -> list[Absent]:
    return [
        Absent("docker", *_docker_reason()),
        Absent("opensandbox", *_opensandbox_reason(config)),
        Absent("sandbox-exec", "sandbox-exec exists on macOS only", "use bubblewrap on Linux"),
        Absent("appcontainer", "AppContainer exists on Windows only", "use bubblewrap on Linux"),
    ]


def _docker_reason() -> tuple[str, str]:
    host = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    if not _answers(host):
        return (
            f"the Docker engine at {host} does not answer",
            "start the engine (systemctl start docker), or set DOCKER_HOST; "
            "or set SANDBOXD_BACKEND=auto for the local sandbox",
        )
    return (
        "this version of sandboxd cannot run commands in Docker containers",
        "set SANDBOXD_BACKEND=auto for the local sandbox",
    )


def _answers(host: str) -> bool:
    """Whether somebody accepts connections on the engine's socket."""
    if not host.startswith("unix://"):
        return False
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1)
        try:
            probe.connect(host.removeprefix("unix://"))
        except OSError:
            return False
    return True


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
