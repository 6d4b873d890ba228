"""A persistent sandbox as an object: commands, files and ports inside it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TypeVar, Unpack

from sandboxd_client.box_operations import (
    BoxOperations,
    Line,
    Listen,
    command_params,
    os_error,
)
from sandboxd_client.client import Client
from sandboxd_client.execution import Execution
from sandboxd_client.option_docs import document_options
from sandboxd_client.options import SandboxOptions
from sandboxd_client.transfers import Links, Operation, Progress
from sandboxd_proto.errors import FileError, SandboxdError
from sandboxd_proto.messages.execute import ExecuteResult
from sandboxd_proto.messages.fs import FileStatus, FolderEntry
from sandboxd_proto.messages.sandbox import Forwarded

T = TypeVar("T")


class Box:
    """`with Box(preset="workspace-write", workspace="/w") as box: box.run("make")`.

    Paths are relative to the workspace, or absolute as the sandbox sees them. Errors of files are
    Python's own (FileNotFoundError, …); their `denial` says what the sandbox refused. The sandbox
    ends with the Box, and with this program (give `scope="user"` for one that others use on). Each
    command may take 30 s unless `timeout` of the Box says else; servers need `timeout="none"`.

    >>> with Box(manifest={"network": "deny"}) as box:
    ...     box.write("/tmp/greeting", "hello")
    ...     box.run("cat /tmp/greeting").stdout.text
    'hello'
    """

    @document_options(SandboxOptions)
    def __init__(
        self,
        client: Client | None = None,
        *,
        attach: str | None = None,
        **options: Unpack[SandboxOptions],
    ) -> None:
        """`attach`: a sandbox that exists, by its id or name; it stays when the Box is left."""
        self._own_client = client is None
        self.client = client or Client()
        self._made = attach is None
        options.setdefault("scope", "connection")
        try:
            self.sandbox = attach or self.client.sandbox_create(**options).sandbox
        except BaseException:
            if self._own_client:
                self.client.close()
            raise
        self._operations = BoxOperations(self.sandbox)

    @classmethod
    def attach(cls, name: str, client: Client | None = None) -> Box:
        """A sandbox that exists, by its id or name; it stays when the Box is left.

        >>> with Box(name="docs-box", scope="user"), Box.attach("docs-box") as same:
        ...     same.run("exit 3").exit_code
        3
        """
        return cls(client, attach=name)

    def __enter__(self) -> Box:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End the sandbox if this Box made it."""
        try:
            if self._made:
                with suppress(SandboxdError):
                    self.client.sandbox_destroy(self.sandbox)
        finally:
            if self._own_client:
                self.client.close()

    def _drive(self, operation: Operation[T]) -> T:
        try:
            call = next(operation)
            while True:
                try:
                    answer = self.client._ask(call)
                except FileError as error:
                    raise os_error(error) from None
                call = operation.send(answer)
        except StopIteration as done:
            result: T = done.value
            return result
        finally:
            operation.close()

    def run(
        self, line: Line, *, cwd: str | None = None, env: Mapping[str, str] | None = None,
        timeout: float | str | None = None, stdin: str | bytes | None = None, merge: bool = False,
    ) -> ExecuteResult:  # fmt: skip
        """Run a command to its end; a line runs as `/bin/sh -c`. `merge`: one ordered stream. After
        `timeout` (seconds or "5m") it is ended, and CommandTimeout is raised, whose `result` has
        the partial output; `Client.execute` returns that result instead.

        >>> with Box() as box:
        ...     box.run("echo out; echo err >&2; cat", stdin="in", merge=True).stdout.text
        'out\\nerr\\nin'
        """
        return self._drive(self._operations.run(line, cwd, env, timeout, stdin, merge))

    def start(
        self, line: Line, *, cwd: str | None = None, env: Mapping[str, str] | None = None,
        timeout: float | str | None = None,
    ) -> Execution:  # fmt: skip
        """A command in the background, which has started: iterate over its output, `write`, `wait`,
        `kill`.

        >>> with Box() as box, box.start("read name; echo hello $name") as running:
        ...     running.write("you\\n")
        ...     running.wait().exit_code
        0
        """
        params = command_params(self.sandbox, line, cwd, env, timeout)
        return Execution(self.client, {**params, "stdin_open": True}, []).__enter__()

    def read(self, path: str, *, offset: int = 0, length: int | None = None) -> bytes:
        """The whole file, or a part of it.

        >>> with Box() as box:
        ...     box.write("/tmp/numbers", "0123456789")
        ...     box.read("/tmp/numbers", offset=2, length=3)
        b'234'
        """
        return self._drive(self._operations.read(path, offset, length))

    def read_text(self, path: str) -> str:
        return self.read(path).decode()

    def write(
        self, path: str, data: str | bytes, *, mode: int | None = None, append: bool = False
    ) -> None:
        self._drive(self._operations.write(path, data, mode, append))

    def list(
        self, path: str = ".", *, recursive: bool = False, limit: int | None = None
    ) -> list[FolderEntry]:
        """The entries of a folder, by name.

        >>> with Box() as box:
        ...     box.mkdir("/tmp/a/b")
        ...     [(entry.name, entry.type) for entry in box.list("/tmp/a")]
        [('b', 'dir')]
        """
        return self._drive(self._operations.list(path, recursive, limit))

    def stat(self, path: str, *, follow: bool = True) -> FileStatus:
        return self._drive(self._operations.stat(path, follow))

    def mkdir(self, path: str, *, parents: bool = True) -> None:
        self._drive(self._operations.mkdir(path, parents))

    def remove(self, path: str, *, recursive: bool = False) -> None:
        self._drive(self._operations.remove(path, recursive))

    def rename(self, path: str, to: str) -> None:
        self._drive(self._operations.rename(path, to))

    def copy(self, path: str, to: str, *, recursive: bool = False) -> None:
        self._drive(self._operations.copy(path, to, recursive))

    def realpath(self, path: str) -> str:
        return self._drive(self._operations.realpath(path))

    def upload(
        self, local: str | Path, path: str, *, progress: Progress | None = None,
        links: Links = "refuse",
    ) -> None:  # fmt: skip
        """A file or a folder of this machine into the sandbox. `progress(done, total)` gets bytes.
        A link that leads out of the folder is an UnsafeLink, or left out with `links="skip"`.

        >>> with tempfile.TemporaryDirectory() as local, Box() as box:
        ...     _ = Path(local, "a.txt").write_text("a")
        ...     box.upload(local, "/tmp/copy")
        ...     box.read_text("/tmp/copy/a.txt")
        'a'
        """
        self._drive(self._operations.upload(local, path, progress, links))

    def download(
        self, path: str, local: str | Path, *, progress: Progress | None = None,
        links: Links = "refuse",
    ) -> None:  # fmt: skip
        """A file or a folder of the sandbox to this machine. Nothing is written outside `local`,
        and no set-id bit is set; links and `progress` as in `upload`.
        """
        self._drive(self._operations.download(path, local, progress, links))

    def forward(self, port: int, *, listen: Listen = "unix") -> Forwarded:
        """Reach a server inside; its `endpoint` is a Unix socket or `127.0.0.1:port`, until the
        sandbox ends or `unforward`. Every user of this machine can connect to a port.
        """
        return self._drive(self._operations.forward(port, listen))

    def unforward(self, forward: str) -> None:
        self._drive(self._operations.unforward(forward))
