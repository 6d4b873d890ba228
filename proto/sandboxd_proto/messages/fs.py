"""`fs/*`: files in a sandbox, carried out by a process inside it."""

from __future__ import annotations

from typing import Literal

import msgspec

from sandboxd_proto.messages.execute import Encoding
from sandboxd_proto.wire import Reported, WireStruct

FileType = Literal["file", "dir", "symlink", "fifo", "socket", "char", "block"]


class ReadParams(WireStruct, frozen=True, kw_only=True):
    """`path` is absolute as the sandbox sees it, or relative to the workspace. At most 8 MiB a
    call."""

    sandbox: str
    path: str
    offset: int = 0
    length: int | None = None


class FileData(Reported, frozen=True, kw_only=True):
    """`bytes` of a file of `size`, beginning at the offset."""

    data: str
    encoding: Encoding
    bytes: int
    size: int
    eof: bool


class FileWriteParams(WireStruct, frozen=True, kw_only=True):
    """Either `data` or `base64`. Without `append` and `offset` the file is replaced."""

    sandbox: str
    path: str
    data: str | None = None
    base64: str | None = None
    append: bool = False
    offset: int | None = None
    parents: bool = True
    mode: int | None = None


class Written(Reported, frozen=True, kw_only=True):
    bytes: int


class StatParams(WireStruct, frozen=True, kw_only=True):
    sandbox: str
    path: str
    follow: bool = True


class FileStatus(Reported, frozen=True, kw_only=True):
    """`target`: where a symlink leads, with `follow` false."""

    type: FileType
    size: int
    mode: int
    uid: int
    mtime_ms: float
    target: str | None


class ListParams(WireStruct, frozen=True, kw_only=True):
    sandbox: str
    path: str
    recursive: bool = False
    limit: int = 10000


class FolderEntry(Reported, frozen=True, kw_only=True):
    """`name` is relative to the folder that was listed. `masked`: what it holds is hidden, and
    reading it is an error."""

    name: str
    type: FileType
    size: int
    mode: int
    mtime_ms: float
    masked: bool = False


class FolderList(Reported, frozen=True, kw_only=True):
    entries: list[FolderEntry] = msgspec.field(default_factory=list)
    truncated: bool = False


class MkdirParams(WireStruct, frozen=True, kw_only=True):
    sandbox: str
    path: str
    parents: bool = True
    mode: int | None = None


class RemoveParams(WireStruct, frozen=True, kw_only=True):
    sandbox: str
    path: str
    recursive: bool = False


class RenameParams(WireStruct, frozen=True, kw_only=True, rename={"source": "from"}):
    sandbox: str
    source: str
    to: str


class CopyParams(WireStruct, frozen=True, kw_only=True, rename={"source": "from"}):
    sandbox: str
    source: str
    to: str
    recursive: bool = False


class PathParams(WireStruct, frozen=True, kw_only=True):
    sandbox: str
    path: str


class RealPath(Reported, frozen=True, kw_only=True):
    path: str
