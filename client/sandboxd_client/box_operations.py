"""What a Box does, described once for the blocking and the async client.

An operation is a generator: it yields calls of the daemon's methods and is sent their results, so
that it need not know how they are made.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from sandboxd_client import calls, payload
from sandboxd_client.calls import MethodCall
from sandboxd_client.errors import CommandTimeout
from sandboxd_client.large_input import with_input
from sandboxd_client.transfers import MOST_ENTRIES, PIECE, Operation, Transfers, check_whole
from sandboxd_proto.errors import FileError
from sandboxd_proto.messages.execute import ExecuteResult
from sandboxd_proto.messages.fs import FileStatus, FolderEntry, FolderList, RealPath
from sandboxd_proto.messages.sandbox import Forwarded

Line = str | Sequence[str]
Listen = Literal["unix", "tcp"]


def os_error(error: FileError) -> OSError:
    """Python's own exception: FileNotFoundError, IsADirectoryError, PermissionError, …

    `denial`: what the sandbox refused, and what would allow it; None if the file system did.
    """
    number = getattr(errno, str(error.facts.get("errno")), errno.EIO)
    path = error.facts.get("path")
    found = OSError(number, error.message.removeprefix(f"{path}: "), path)
    found.denial = error.facts.get("denial")  # type: ignore[attr-defined]
    return found


def command_params(
    sandbox: str, line: Line, cwd: str | None, env: Mapping[str, str] | None,
    timeout: float | str | None,
) -> dict[str, Any]:  # fmt: skip
    """A line runs as `/bin/sh -c` inside."""
    argv = ["/bin/sh", "-c", line] if isinstance(line, str) else list(line)
    params: dict[str, Any] = {"argv": argv, "sandbox": sandbox}
    manifest: dict[str, Any] = {}
    if env is not None:
        manifest["env"] = dict(env)
    if timeout is not None:
        manifest["timeout"] = timeout
    if manifest:
        params["manifest"] = manifest
    if cwd is not None:
        params["cwd"] = cwd
    return params


class BoxOperations(Transfers):
    def run(
        self, line: Line, cwd: str | None, env: Mapping[str, str] | None,
        timeout: float | str | None, stdin: str | bytes | None, merge: bool,
    ) -> Operation[ExecuteResult]:  # fmt: skip
        params = command_params(self.sandbox, line, cwd, env, timeout)
        if merge:
            params["stderr"] = "stdout"
        call: MethodCall[ExecuteResult] = MethodCall("execute", params, ExecuteResult)
        result: ExecuteResult = yield call if stdin is None else with_input(call, stdin)
        if result.outcome == "timeout":
            raise CommandTimeout(result)
        return result

    def read(self, path: str, offset: int, length: int | None) -> Operation[bytes]:
        pieces: list[bytes] = []
        yield from self.read_pieces(path, offset, length, pieces.append)
        return b"".join(pieces)

    def write(
        self, path: str, data: str | bytes, mode: int | None, append: bool
    ) -> Operation[None]:
        content = payload.encode(data)
        for at in range(0, len(content) or 1, PIECE):
            first, last = at == 0 and not append, at + PIECE >= len(content)
            yield self.write_piece(path, content[at : at + PIECE], mode, first=first, last=last)

    def list(self, path: str, recursive: bool, limit: int | None) -> Operation[list[FolderEntry]]:
        most = MOST_ENTRIES if limit is None else limit
        found: FolderList = yield self.fs(
            "list", FolderList, path=path, recursive=recursive, limit=most
        )
        if limit is None:
            check_whole(path, found)
        return found.entries

    def stat(self, path: str, follow: bool) -> Operation[FileStatus]:
        status: FileStatus = yield self.fs("stat", FileStatus, path=path, follow=follow)
        return status

    def mkdir(self, path: str, parents: bool) -> Operation[None]:
        yield self.fs("mkdir", Any, path=path, parents=parents)

    def remove(self, path: str, recursive: bool) -> Operation[None]:
        yield self.fs("remove", Any, path=path, recursive=recursive)

    def rename(self, path: str, to: str) -> Operation[None]:
        yield self.fs("rename", Any, **{"from": path, "to": to})

    def copy(self, path: str, to: str, recursive: bool) -> Operation[None]:
        yield self.fs("copy", Any, **{"from": path, "to": to, "recursive": recursive})

    def realpath(self, path: str) -> Operation[str]:
        found: RealPath = yield self.fs("realpath", RealPath, path=path)
        return found.path

    def forward(self, port: int, listen: Listen) -> Operation[Forwarded]:
        made: Forwarded = yield calls.sandbox_forward(self.sandbox, port, listen)
        return made

    def unforward(self, forward: str) -> Operation[None]:
        yield calls.sandbox_unforward(self.sandbox, forward)
