"""The asynchronous Box: a persistent sandbox as an object, for asyncio and trio."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TypeVar, Unpack

from sandboxd_client.async_client import AsyncClient
from sandboxd_client.async_execution import AsyncExecution
from sandboxd_client.box_operations import (
    BoxOperations,
    Line,
    Listen,
    command_params,
    os_error,
)
from sandboxd_client.option_docs import document_options
from sandboxd_client.options import SandboxOptions
from sandboxd_client.transfers import Links, Operation, Progress
from sandboxd_proto.errors import FileError, SandboxdError
from sandboxd_proto.messages.execute import ExecuteResult
from sandboxd_proto.messages.fs import FileStatus, FolderEntry
from sandboxd_proto.messages.sandbox import Forwarded

T = TypeVar("T")


class AsyncBox:
    """`async with AsyncBox(preset=…, workspace=…) as box: await box.run("make")`.

    Everything as in `Box`.

    >>> async def main():
    ...     async with AsyncBox() as box:
    ...         await box.write("/tmp/greeting", "hello")
    ...         return (await box.run("cat /tmp/greeting")).stdout.text
    >>> anyio.run(main)
    'hello'
    """

    @document_options(SandboxOptions)
    def __init__(
        self,
        client: AsyncClient | None = None,
        *,
        attach: str | None = None,
        **options: Unpack[SandboxOptions],
    ) -> None:
        """`attach`: a sandbox that exists, by its id or name; it stays when the Box is left."""
        self._own_client = client is None
        self.client = client or AsyncClient()
        self._made = attach is None
        options.setdefault("scope", "connection")
        self._options = options
        self.sandbox = attach or ""
        self._operations = BoxOperations(self.sandbox)

    @classmethod
    def attach(cls, name: str, client: AsyncClient | None = None) -> AsyncBox:
        return cls(client, attach=name)

    async def __aenter__(self) -> AsyncBox:
        if self._own_client:
            await self.client.__aenter__()
        try:
            if self._made:
                self.sandbox = (await self.client.sandbox_create(**self._options)).sandbox
                self._operations = BoxOperations(self.sandbox)
        except BaseException:
            if self._own_client:
                await self.client.aclose()
            raise
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """End the sandbox if this Box made it."""
        try:
            if self._made:
                with suppress(SandboxdError):
                    await self.client.sandbox_destroy(self.sandbox)
        finally:
            if self._own_client:
                await self.client.aclose()

    async def _drive(self, operation: Operation[T]) -> T:
        try:
            call = next(operation)
            while True:
                try:
                    answer = await self.client._ask(call)
                except FileError as error:
                    raise os_error(error) from None
                call = operation.send(answer)
        except StopIteration as done:
            result: T = done.value
            return result
        finally:
            operation.close()

    async def run(
        self, line: Line, *, cwd: str | None = None, env: Mapping[str, str] | None = None,
        timeout: float | str | None = None, stdin: str | bytes | None = None, merge: bool = False,
    ) -> ExecuteResult:  # fmt: skip
        """As `Box.run`: raises CommandTimeout, where `AsyncClient.execute` returns the result."""
        return await self._drive(self._operations.run(line, cwd, env, timeout, stdin, merge))

    def start(
        self, line: Line, *, cwd: str | None = None, env: Mapping[str, str] | None = None,
        timeout: float | str | None = None,
    ) -> AsyncExecution:  # fmt: skip
        """Start it with `await box.start(…)` or `async with box.start(…)`."""
        params = command_params(self.sandbox, line, cwd, env, timeout)
        return AsyncExecution(self.client, {**params, "stdin_open": True}, [])

    async def read(self, path: str, *, offset: int = 0, length: int | None = None) -> bytes:
        return await self._drive(self._operations.read(path, offset, length))

    async def read_text(self, path: str) -> str:
        return (await self.read(path)).decode()

    async def write(
        self, path: str, data: str | bytes, *, mode: int | None = None, append: bool = False
    ) -> None:
        await self._drive(self._operations.write(path, data, mode, append))

    async def list(
        self, path: str = ".", *, recursive: bool = False, limit: int | None = None
    ) -> list[FolderEntry]:
        return await self._drive(self._operations.list(path, recursive, limit))

    async def stat(self, path: str, *, follow: bool = True) -> FileStatus:
        return await self._drive(self._operations.stat(path, follow))

    async def mkdir(self, path: str, *, parents: bool = True) -> None:
        await self._drive(self._operations.mkdir(path, parents))

    async def remove(self, path: str, *, recursive: bool = False) -> None:
        await self._drive(self._operations.remove(path, recursive))

    async def rename(self, path: str, to: str) -> None:
        await self._drive(self._operations.rename(path, to))

    async def copy(self, path: str, to: str, *, recursive: bool = False) -> None:
        await self._drive(self._operations.copy(path, to, recursive))

    async def realpath(self, path: str) -> str:
        return await self._drive(self._operations.realpath(path))

    async def upload(
        self, local: str | Path, path: str, *, progress: Progress | None = None,
        links: Links = "refuse",
    ) -> None:  # fmt: skip
        await self._drive(self._operations.upload(local, path, progress, links))

    async def download(
        self, path: str, local: str | Path, *, progress: Progress | None = None,
        links: Links = "refuse",
    ) -> None:  # fmt: skip
        await self._drive(self._operations.download(path, local, progress, links))

    async def forward(self, port: int, *, listen: Listen = "unix") -> Forwarded:
        return await self._drive(self._operations.forward(port, listen))

    async def unforward(self, forward: str) -> None:
        await self._drive(self._operations.unforward(forward))
