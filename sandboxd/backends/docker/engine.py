"""The calls of the engine's API that this backend needs, with time limits and mapped errors.

Uses aiodocker. The connector has no limit: a run in attach mode holds two connections, so with
aiodocker's default of a hundred connections a hundred runs would deadlock.
"""

from __future__ import annotations

import importlib.util
import logging
import shutil
import socket
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import anyio
import msgspec

from sandboxd.backends.docker.endpoint import Endpoint
from sandboxd.backends.docker.pulling import PullProgress
from sandboxd.config.setting_words import backend_words
from sandboxd_proto.errors import SandboxUnavailable

if TYPE_CHECKING:
    import aiodocker
    import aiohttp
    from aiodocker.stream import Stream

log = logging.getLogger(__name__)
CALL_S = 60.0  # create and start, on a busy engine
# runc's words when its first process in a container ended without an error of its own.
_LOST_INIT = ("error during container init: %!w(<nil>)", "cannot start a stopped process")
_PROGRAMS = "/usr/bin:/usr/sbin:/usr/local/bin:/usr/local/sbin"
SHORT_S = 10.0  # the calls that end a container
NO_CONNECTION = 900  # aiodocker's number for it; not HTTP's
T = TypeVar("T")
Body = dict[str, Any]

NOT_INSTALLED = SandboxUnavailable(
    "the docker backend needs the Python package aiodocker, which is not installed",
    remedy="install sandboxd with it, in the checkout: uv tool install --force '.[docker]' (or "
    "pipx install --force '.[docker]', or pip install '.[docker]')",
)


class EngineError(Exception):
    """The engine answered with an error: status code and message."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class EngineInfo(msgspec.Struct, frozen=True):
    """What an engine reports about itself. `identity` differs for another engine.

    `podman`: it is Podman behind its compatible API, which takes other options here and there."""

    identity: str
    version: str
    rootless: bool
    userns_remap: bool
    security: tuple[str, ...]
    data_root: str
    podman: bool


class Engine:
    """One engine. Used from one event loop; `close` ends its connections."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._client: aiodocker.Docker | None = None
        self._connector: aiohttp.BaseConnector | None = None

    # calls

    async def facts(self) -> EngineInfo:
        said = await self._call(lambda docker: docker.system.info(), SHORT_S)
        security = tuple(str(option) for option in said.get("SecurityOptions") or ())
        podman = "BuildahVersion" in said
        data_root = str(said.get("DockerRootDir") or "")
        return EngineInfo(
            # Podman generates a new one for every answer.
            identity=data_root if podman else str(said.get("ID") or ""),
            version=str(said.get("ServerVersion") or "?"),
            rootless=any("rootless" in option for option in security),
            userns_remap=any("name=userns" in option for option in security),
            security=security,
            data_root=data_root,
            podman=podman,
        )

    async def create(self, name: str, body: Body) -> str:
        """The id of the new container."""
        made = await self._call(lambda docker: docker.containers.create(body, name=name))
        return str(made.id)

    async def start(self, container: str) -> None:
        """Once more where runc's own first process was killed and runc cannot say why."""
        try:
            await self._start(container)
        except EngineError as error:
            if not any(words in error.message for words in _LOST_INIT):
                raise
            log.warning("a container is started again: %s", error.message)
            try:
                await self._start(container)
            except EngineError:
                raise error from None

    async def _start(self, container: str) -> None:
        await self._call(lambda docker: docker.containers.container(container).start())

    async def inspect(self, container: str) -> Body:
        return await self._call(lambda d: d.containers.container(container).show(), SHORT_S)

    async def kill(self, container: str, signal: int) -> None:
        await self._call(
            lambda docker: docker.containers.container(container).kill(signal=str(signal)), SHORT_S
        )

    async def remove(self, container: str) -> None:
        """Remove it with its volumes, running or not. A missing container is no error."""
        try:
            await self._call(
                lambda docker: docker.containers.container(container).delete(force=True, v=True),
                SHORT_S,
            )
        except EngineError as error:
            if error.status not in (404, 409):  # 409: the engine is removing it already
                raise

    async def resize(self, container: str, rows: int, cols: int) -> None:
        await self._call(
            lambda docker: docker.containers.container(container).resize(h=rows, w=cols), SHORT_S
        )

    async def wait(self, container: str) -> int:
        """The exit code; waits without a time limit."""
        said = await self._call(lambda docker: docker.containers.container(container).wait(), None)
        return int(said["StatusCode"])

    async def attach(
        self, container: str, which: Literal["input", "output"], *, tty: bool
    ) -> Stream:
        """One direction of its streams, connected before the start, so no output is lost.

        Two connections: the end of input is the end of its connection, TLS has no half-close.
        """

        async def connect(docker: aiodocker.Docker) -> Stream:
            handle = docker.containers.container(container, Config={"Tty": tty})
            out = which == "output"
            stream = handle.attach(stdin=not out, stdout=out, stderr=out)
            await stream._init()
            return stream

        return await self._call(connect)

    async def put(self, container: str, folder: str, tar: bytes) -> None:
        """Copy files into a container that is not started yet."""

        async def put(docker: aiodocker.Docker) -> None:
            handle = docker.containers.container(container)
            await handle.put_archive(folder, tar)  # type: ignore[no-untyped-call]

        await self._call(put)

    async def labelled(self, label: str) -> list[str]:
        """The ids of all containers that carry `label` (key=value), whatever their state."""
        found = await self._call(
            lambda docker: docker.containers.list(all=1, filters=f'{{"label":["{label}"]}}'),
            SHORT_S,
        )
        return [str(container.id) for container in found]

    async def has_image(self, image: str) -> bool:
        try:
            await self._call(lambda docker: docker.images.inspect(image), SHORT_S)
        except EngineError as error:
            if error.status == 404:
                return False
            raise
        return True

    async def pull(self, image: str) -> None:
        async def pull(docker: aiodocker.Docker) -> None:
            seen = PullProgress()
            async for line in docker.images.pull(image, stream=True):
                seen.add(line)
            seen.finish()

        await self._call(pull, None)

    async def close(self) -> None:
        client, self._client = self._client, None
        connector, self._connector = self._connector, None
        if client is not None:
            await client.close()
        if connector is not None:
            await connector.close()

    # transport

    async def _call(
        self, ask: Callable[[aiodocker.Docker], Awaitable[T]], timeout_s: float | None = CALL_S
    ) -> T:
        docker = self._connected()
        import aiodocker
        import aiohttp

        try:
            with anyio.fail_after(timeout_s):
                return await ask(docker)
        except aiodocker.DockerError as error:
            if error.status == NO_CONNECTION:
                raise self.unreachable(_why(str(error.message))) from None
            raise EngineError(error.status, str(error.message)) from None
        except TimeoutError:
            raise self.unreachable(f"no answer in {timeout_s:g} s") from None
        except (aiohttp.ClientError, OSError) as error:
            raise self.unreachable(str(error)) from None

    def _connected(self) -> aiodocker.Docker:
        if self._client is None:
            if importlib.util.find_spec("aiodocker") is None:
                raise NOT_INSTALLED
            self._check_socket()
            import aiodocker

            self._connector = self._reaching()
            self._client = aiodocker.Docker(self.endpoint.base_url, connector=self._connector)
        return self._client

    def _check_socket(self) -> None:
        """Most machines have no engine: to learn that, `status` need not load aiohttp, 8 MB."""
        if self.endpoint.socket is None:
            return
        try:
            with socket.socket(socket.AF_UNIX) as probe:
                probe.setblocking(False)
                probe.connect(self.endpoint.socket)
        except BlockingIOError:  # many others connect
            return
        except OSError as error:
            raise self.unreachable(error.strerror or str(error)) from None

    def _reaching(self) -> aiohttp.BaseConnector:
        import aiohttp

        if not self.endpoint.is_spoken:
            raise SandboxUnavailable(
                f"the Docker engine at {self.endpoint.url} cannot be reached: sandboxd speaks to "
                "unix:// and tcp:// only",
                remedy="forward its socket (ssh -NL /path/engine.sock:/var/run/docker.sock HOST) "
                "and set DOCKER_HOST=unix:///path/engine.sock",
            )
        if self.endpoint.socket is not None:
            # One connection per call: a kept one is broken after the engine restarts.
            return aiohttp.UnixConnector(self.endpoint.socket, limit=0, force_close=True)
        try:
            tls = self.endpoint.tls()
        except OSError as error:
            raise self.unreachable(f"its certificates cannot be read: {error}") from None
        return aiohttp.TCPConnector(limit=0, ssl=tls if tls is not None else True)

    def unreachable(self, why: str) -> SandboxUnavailable:
        return SandboxUnavailable(
            f"the Docker engine at {self.endpoint.url} does not answer: {why}",
            remedy=f"{self._first_step(why)}; another engine: "
            '[docker] host = "unix:///path" in the config and restart sandboxd; '
            f"or for the local sandbox {backend_words('auto')}",
        )

    def _first_step(self, why: str) -> str:
        """What to do about the engine, by what the connection failed with."""
        if self.endpoint.socket is None:
            return "check the address, and that the engine listens there"
        if "Permission denied" in why:
            return (
                "let your account use the engine (sudo usermod -aG docker $USER; it makes the "
                "account as powerful as root), log in again and restart sandboxd"
            )
        if not any(shutil.which(program, path=_PROGRAMS) for program in ("dockerd", "podman")):
            return "install Docker or Podman, and start it"
        return (
            "start the engine (sudo systemctl start docker, or for Podman "
            "systemctl --user start podman.socket)"
        )


def _why(said: str) -> str:
    """Strip the text that aiodocker and aiohttp add around the message."""
    return said.replace("]", "").rpartition("[")[2] or said
