"""Files of a persistent sandbox: each operation is carried out by a process inside it."""

from __future__ import annotations

import errno
import os
import posixpath
import socket
import stat
import struct
from collections.abc import Callable
from typing import TypeVar

import anyio
import anyio.to_thread
import msgspec

from sandboxd.denials.text.temporary_names import place_of
from sandboxd.denials.text.verbs import Operation
from sandboxd.linux.init_client.file_server import (
    ANSWER_S,
    NO_MODE,
    READ_MAX,
    AnswerReader,
    FileFailed,
    FileOperation,
    FileServer,
    NotSent,
    ServerEnded,
    Status,
    start,
    string,
)
from sandboxd.policy.paths.within import within_any
from sandboxd.policy.plan import Limits, Plan
from sandboxd.supervisor.classifier import Classifier
from sandboxd.supervisor.execution.stdio.text import encode
from sandboxd.types import Command, Sandbox
from sandboxd_proto.denial import Denial
from sandboxd_proto.errors import FileError
from sandboxd_proto.messages.fs import (
    FileData,
    FileStatus,
    FileType,
    FolderEntry,
    FolderList,
)

_TYPES: dict[int, FileType] = {
    stat.S_IFREG >> 12: "file",
    stat.S_IFDIR >> 12: "dir",
    stat.S_IFLNK >> 12: "symlink",
    stat.S_IFIFO >> 12: "fifo",
    stat.S_IFSOCK >> 12: "socket",
    stat.S_IFCHR >> 12: "char",
    stat.S_IFBLK >> 12: "block",
}
_REMEDIES = {
    errno.ENOENT: "check the path; fs/list shows what is there",
    errno.EISDIR: "name a file, or use fs/list",
    errno.ENOTDIR: "a part of the path is a file",
    errno.EROFS: "the sandbox may not write there; create it with the path in fs_write_allow",
    errno.EACCES: "the sandbox may not do this there",
    errno.EPERM: "the sandbox may not do this there",
    errno.EINVAL: "only regular files can be read and written",
    errno.EBUSY: "a mount point or the workspace itself cannot be removed",
    errno.ENOTEMPTY: 'remove it with "recursive": true',
    errno.EEXIST: "choose another name",
}


_READS = Operation("read", "read")
_CHANGES = {
    FileOperation.WRITE: Operation("write", "write"),
    FileOperation.COPY: Operation("write", "write"),
    FileOperation.MKDIR: Operation("mkdir", "write", in_folder=True),
    FileOperation.REMOVE: Operation("remove", "write", in_folder=True),
    FileOperation.RENAME: Operation("rename", "write", in_folder=True),
}
_MAKES = {FileOperation.WRITE, FileOperation.COPY, FileOperation.MKDIR, FileOperation.RENAME}
# A server handles one request at a time: long operations have a server of their own.
_TREES = {FileOperation.LIST, FileOperation.REMOVE, FileOperation.COPY}
TREE_S = 600.0
LARGE = 64 * 1024  # bytes of an answer
T = TypeVar("T")


class _Slot:
    """One file server: started at the first use and again after it was killed."""

    def __init__(self, sandbox: Sandbox, command: Command) -> None:
        self._sandbox = sandbox
        self._command = command
        self._server: FileServer | None = None
        self._starting = anyio.Lock(fast_acquire=True)

    async def ready(self) -> FileServer:
        async with self._starting:
            if self._server is None or not self._server.alive:
                self.close()
                self._server = await start(self._sandbox, self._command)
            return self._server

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None


class SandboxFiles:
    """Servers for operations on one file, for trees, and for connections."""

    def __init__(self, sandbox: Sandbox, plan: Plan, classifier: Classifier) -> None:
        self._classifier = classifier
        self._cwd = plan.workspace or plan.cwd
        self._absent = _never_made(plan)
        self._granted = [grant.path for grant in plan.sandbox.grants]
        self._masks = {mask.path for mask in plan.sandbox.masks}
        self._mask_names = {posixpath.basename(path) for path in self._masks}
        command = Command(
            argv=("sandboxd-files",),
            env=(),
            cwd=self._cwd,
            limits=Limits(file_bytes=plan.limits.file_bytes),
            syscall_policy=plan.syscall_policy,
            keep_background=True,
            files=True,
        )
        self._files, self._trees, self._connections = (_Slot(sandbox, command) for _ in range(3))

    async def _do(self, operation: FileOperation, fields: bytes, *paths: str) -> AnswerReader:
        if operation in _MAKES and self._is_protected(paths[-1]):
            raise _protected_error(paths[-1])
        if operation in _MAKES:
            self._refuse_beside(paths[-1])
        try:
            return await self._request(operation, fields)
        except FileFailed as failed:
            raise await self._error(operation, failed, paths) from None
        except ServerEnded as ended:
            if operation in _CHANGES and not isinstance(ended, NotSent):
                raise  # the operation may have been carried out
        try:
            return await self._request(operation, fields)
        except FileFailed as failed:
            raise await self._error(operation, failed, paths) from None

    def _is_protected(self, path: str) -> bool:
        """Whether it would make a protected path, which ends the sandbox when it appears. By its
        spelling: one that leads there by a symlink is noticed only then."""
        return within_any(os.path.normpath(os.path.join(self._cwd, path)), self._absent)

    def _refuse_beside(self, path: str) -> None:
        """`../x` where the folders around the workspace are those of a private /tmp."""
        full = os.path.normpath(os.path.join(self._cwd, path))
        place = None if os.path.isabs(path) else place_of(full)
        if place is not None and not within_any(full, self._granted):
            raise FileError(
                f"{full} is in no granted folder: it would not appear on the host, because the "
                f"sandbox has no access to the host's {place} there",
                errno="EACCES", path=path,
                remedy="write into the workspace, or create the sandbox with the folder in "
                f"fs_write_allow. A file in the sandbox's own {place} is named by an absolute path",
            )  # fmt: skip

    async def _request(self, operation: FileOperation, fields: bytes) -> AnswerReader:
        is_tree = operation in _TREES
        server = await (self._trees if is_tree else self._files).ready()
        return await server.request(operation, fields, TREE_S if is_tree else ANSWER_S)

    async def _error(
        self, operation: FileOperation, failed: FileFailed, paths: tuple[str, ...]
    ) -> FileError:
        """The error, with a denial if the sandbox refused the operation and not the file system."""
        name = errno.errorcode.get(failed.errno, str(failed.errno))
        did = _CHANGES.get(operation, _READS)
        attempts = [(path, did) for path in paths]
        if operation == FileOperation.COPY:
            attempts[0] = (paths[0], _READS)
        denial = await self._classifier.judge_file(name, attempts)
        remedy = _REMEDIES.get(failed.errno, "see errno")
        facts = {"errno": name, "path": paths[0]}
        if denial is not None:
            return FileError(
                f"{paths[0]}: {failed}", remedy=remedy, **facts,
                denial=msgspec.to_builtins(denial),
            )  # fmt: skip
        return FileError(f"{paths[0]}: {failed}", remedy=remedy, **facts)

    async def read(self, path: str, offset: int, length: int | None) -> FileData:
        wanted = READ_MAX if length is None else min(length, READ_MAX)
        fields = string(path) + struct.pack("<QQ", offset, wanted)
        answer = await self._do(FileOperation.READ, fields, path)
        size, data = answer.number("Q"), answer.rest()
        if size == 0:
            await self._refuse_masked(path)
        text, encoding = await _beside(len(answer), lambda: encode(data))
        eof = offset + len(data) >= size
        return FileData(data=text, encoding=encoding, bytes=len(data), size=size, eof=eof)

    async def write(
        self, path: str, data: bytes, *, append: bool, offset: int | None, parents: bool,
        mode: int | None,
    ) -> int:  # fmt: skip
        flags = (1 if append else 0) | (2 if offset is not None else 0) | (4 if parents else 0)
        numbers = struct.pack("<IIQ", flags, NO_MODE if mode is None else mode, offset or 0)
        answer = await self._do(FileOperation.WRITE, string(path) + numbers + data, path)
        return answer.number("Q")

    async def stat(self, path: str, *, follow: bool) -> FileStatus:
        fields = string(path) + struct.pack("<I", follow)
        answer = await self._do(FileOperation.STAT, fields, path)
        status, target = answer.status(), answer.string()
        return FileStatus(
            type=_type(status), size=status.size, mode=status.mode, uid=status.uid,
            mtime_ms=float(status.mtime_ms), target=target or None,
        )  # fmt: skip

    async def list(self, path: str, *, recursive: bool, limit: int) -> FolderList:
        fields = string(path) + struct.pack("<II", recursive, limit)
        answer = await self._do(FileOperation.LIST, fields, path)
        found = await _beside(len(answer), lambda: _folder_list(answer, limit))
        if not found.entries:
            await self._refuse_masked(path)
            if recursive:  # which leaves out folders that cannot be read, also this one
                return await self.list(path, recursive=False, limit=limit)
        return await self._marked(path, found)

    async def _refuse_masked(self, path: str) -> None:
        """An empty file or folder may be the mount that hides another one."""
        denial = await self._classifier.judge_mask(await self._real(path))
        if denial is not None:
            raise FileError(
                f"{path}: {denial.message}", remedy="use it outside of the sandbox",
                errno="EACCES", path=path, denial=msgspec.to_builtins(denial),
            )  # fmt: skip

    async def _real(self, path: str) -> str:
        """As it is spelled where it is not there."""
        try:
            return await self.realpath(path)
        except FileError:
            return posixpath.normpath(posixpath.join(self._cwd, path))

    async def _marked(self, path: str, found: FolderList) -> FolderList:
        """With what a mask hides marked. Few lists have an entry with such a name."""
        suspects = [e for e in found.entries if posixpath.basename(e.name) in self._mask_names]
        if not suspects:
            return found
        folder = await self._real(path)
        masked = {e.name for e in suspects if posixpath.join(folder, e.name) in self._masks}
        return msgspec.structs.replace(found, entries=[
            msgspec.structs.replace(e, masked=True) if e.name in masked else e
            for e in found.entries
        ])  # fmt: skip

    async def mkdir(self, path: str, *, parents: bool, mode: int | None) -> None:
        numbers = struct.pack("<II", parents, NO_MODE if mode is None else mode)
        await self._do(FileOperation.MKDIR, string(path) + numbers, path)

    async def remove(self, path: str, *, recursive: bool) -> None:
        await self._do(FileOperation.REMOVE, string(path) + struct.pack("<I", recursive), path)

    async def rename(self, source: str, to: str) -> None:
        await self._do(FileOperation.RENAME, string(source) + string(to), source, to)

    async def copy(self, source: str, to: str, *, recursive: bool) -> None:
        fields = string(source) + string(to) + struct.pack("<I", recursive)
        if within_any(await self._real(source), self._masks):
            await self._refuse_masked(source)
        await self._do(FileOperation.COPY, fields, source, to)

    async def realpath(self, path: str) -> str:
        answer = await self._do(FileOperation.REALPATH, string(path), path)
        return answer.string()

    async def connect(self, port: int) -> socket.socket:
        """OSError if nothing listens there."""
        server = await self._connections.ready()
        try:
            return await server.connect(port)
        except FileFailed as failed:
            raise OSError(failed.errno, str(failed)) from None

    def close(self) -> None:
        for slot in (self._files, self._trees, self._connections):
            slot.close()


def _never_made(plan: Plan) -> list[str]:
    """Protected paths that do not exist; of a repository that may be made, what runs code in it."""
    found = [one.path for one in plan.sandbox.protected if one.rule == "absent"]
    made = [one.path for one in plan.sandbox.protected if one.rule == "new_repository"]
    return found + [f"{path}/{name}" for path in made for name in ("hooks", "config", "modules")]


def _protected_error(path: str) -> FileError:
    why = "it is protected, because it can run code outside the sandbox later"
    denial = Denial(
        kind="protected_path", operation="create", target=path, layer="supervisor",
        evidence="policy", confidence="high", message=f"{path} stays as it is: {why}",
        remedy=None,
    )  # fmt: skip
    return FileError(
        f"{path}: {why}", remedy="make it outside of the sandbox", errno="EROFS", path=path,
        denial=msgspec.to_builtins(denial),
    )  # fmt: skip


async def _beside(size: int, work: Callable[[], T]) -> T:
    """In a thread where there is so much that the event loop's other work would wait."""
    return work() if size < LARGE else await anyio.to_thread.run_sync(work)


def _folder_list(answer: AnswerReader, limit: int) -> FolderList:
    count, truncated = answer.number("I"), answer.number("I")
    entries = []
    for _ in range(min(count, limit)):
        name, status = answer.string(), answer.status()
        entries.append(
            FolderEntry(
                name=name, type=_type(status), size=status.size, mode=status.mode,
                mtime_ms=float(status.mtime_ms),
            )
        )  # fmt: skip
    return FolderList(entries=sorted(entries, key=lambda e: e.name), truncated=bool(truncated))


def _type(status: Status) -> FileType:
    return _TYPES.get(status.kind, "file")
