"""`fs/*`: files in a persistent sandbox, as a process inside it sees them."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sandboxd.rpc.dispatch import later
from sandboxd.rpc.handlers.admission import check_mode, hold_sandbox
from sandboxd.rpc.handlers.execution import NOTHING
from sandboxd.rpc.handlers.usable_sandbox import find_sandbox, find_usable
from sandboxd.rpc.request_context import RequestContext
from sandboxd.supervisor.execution.stdio.text import decode_base64
from sandboxd.supervisor.sandboxes.files import SandboxFiles
from sandboxd_proto.errors import FileError, InvalidParams, PathDenied, SandboxUnavailable
from sandboxd_proto.messages.execution import Nothing
from sandboxd_proto.messages.fs import (
    CopyParams,
    FileData,
    FileStatus,
    FileWriteParams,
    FolderList,
    ListParams,
    MkdirParams,
    PathParams,
    ReadParams,
    RealPath,
    RemoveParams,
    RenameParams,
    StatParams,
    Written,
)

MOST_ENTRIES = 100_000
LAST_OFFSET = 2**63 - 1
LONGEST_PATH = 4096  # with its NUL


async def _files(call: RequestContext, sandbox: str, *paths: str) -> SandboxFiles:
    """The files of a sandbox that this session may use; its mode decides as for a command."""
    for path in paths:
        if not path or "\0" in path:
            raise InvalidParams("a path is empty or has NUL in it", field="path")
        if len(os.fsencode(path)) >= LONGEST_PATH:
            raise FileError(
                f"the path is longer than {LONGEST_PATH - 1} bytes, the kernel's limit",
                errno="ENAMETOOLONG", path=path[:100], remedy="use a shorter path",
            )  # fmt: skip
    kept, session = find_sandbox(call, sandbox), call.session()
    found = check_mode(call, session, kept.plan, kept.session)
    if found.decision == "ask":
        await hold_sandbox(call, session, kept.plan, found, None)
    return (await find_usable(call, sandbox)).files()


@asynccontextmanager
async def _change(
    call: RequestContext, sandbox: str, operation: str, *paths: str
) -> AsyncIterator[SandboxFiles]:
    """The same for operations that change files, which are recorded. A protected path that appeared
    is moved aside before the answer."""
    files = await _files(call, sandbox, *paths)
    watched = call.service.supervisor.sandboxes.find(sandbox).watched
    call.service.admission.recorder.write(
        "fs.changed", {"sandbox": sandbox, "operation": operation, "paths": list(paths)},
        session=call.session().id, client=call.requester, must=True,
    )  # fmt: skip
    if watched is None:
        yield files
        return
    watched.begin()
    try:
        yield files
        found = await watched.settle()
    except SandboxUnavailable:
        await watched.settle()
        raise
    finally:
        watched.end()
    if found:
        raise PathDenied(
            f"{found[0][0]} is protected: what was made there was moved aside", field="path",
            remedy="write it outside the sandbox",
        )  # fmt: skip


@later
async def read(call: RequestContext, params: ReadParams) -> FileData:
    _check_offset(params.offset)
    if params.length is not None and params.length < 0:
        raise InvalidParams("length must be 0 or more", field="length")
    files = await _files(call, params.sandbox, params.path)
    return await files.read(params.path, params.offset, params.length)


@later
async def write(call: RequestContext, params: FileWriteParams) -> Written:
    if (params.data is None) == (params.base64 is None):
        raise InvalidParams("give either data or base64", field="data")
    if params.append and params.offset is not None:
        raise InvalidParams("append and offset exclude each other", field="offset")
    _check_offset(params.offset or 0)
    if params.base64 is not None:
        data = decode_base64(params.base64, "base64")
    else:
        data = (params.data or "").encode()
    mode = _mode(params.mode)
    async with _change(call, params.sandbox, "write", params.path) as files:
        written = await files.write(
            params.path, data, append=params.append, offset=params.offset, parents=params.parents,
            mode=mode,
        )  # fmt: skip
    return Written(bytes=written)


def _check_offset(offset: int) -> None:
    if not 0 <= offset <= LAST_OFFSET:
        raise InvalidParams(f"offset must be 0 to {LAST_OFFSET}", field="offset")


def _mode(mode: int | None) -> int | None:
    if mode is not None and not 0 <= mode <= 0o777:
        raise InvalidParams("mode must be 0 to 0o777 (511)", field="mode")
    return mode


@later
async def stat(call: RequestContext, params: StatParams) -> FileStatus:
    files = await _files(call, params.sandbox, params.path)
    return await files.stat(params.path, follow=params.follow)


@later
async def list_(call: RequestContext, params: ListParams) -> FolderList:
    if not 0 < params.limit <= MOST_ENTRIES:
        raise InvalidParams(f"limit must be 1 to {MOST_ENTRIES}", field="limit")
    files = await _files(call, params.sandbox, params.path)
    return await files.list(params.path, recursive=params.recursive, limit=params.limit)


@later
async def mkdir(call: RequestContext, params: MkdirParams) -> Nothing:
    async with _change(call, params.sandbox, "mkdir", params.path) as files:
        await files.mkdir(params.path, parents=params.parents, mode=_mode(params.mode))
    return NOTHING


@later
async def remove(call: RequestContext, params: RemoveParams) -> Nothing:
    async with _change(call, params.sandbox, "remove", params.path) as files:
        await files.remove(params.path, recursive=params.recursive)
    return NOTHING


@later
async def rename(call: RequestContext, params: RenameParams) -> Nothing:
    async with _change(call, params.sandbox, "rename", params.source, params.to) as files:
        await files.rename(params.source, params.to)
    return NOTHING


@later
async def copy(call: RequestContext, params: CopyParams) -> Nothing:
    async with _change(call, params.sandbox, "copy", params.source, params.to) as files:
        await files.copy(params.source, params.to, recursive=params.recursive)
    return NOTHING


@later
async def realpath(call: RequestContext, params: PathParams) -> RealPath:
    files = await _files(call, params.sandbox, params.path)
    return RealPath(path=await files.realpath(params.path))
