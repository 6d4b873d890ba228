"""`upload` and `download` of a Box: a file, or a folder with everything in it, by `fs/*`."""

from __future__ import annotations

import errno
import posixpath
from base64 import b64encode
from binascii import a2b_base64
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, Literal, TypeVar

from sandboxd_client import local_tree
from sandboxd_client.calls import MethodCall
from sandboxd_client.local_tree import LocalEntry, Root, UnsafeLink
from sandboxd_proto.messages.execute import ExecuteResult
from sandboxd_proto.messages.fs import FileData, FileStatus, FolderEntry, FolderList, Written

PIECE = 4 << 20
MOST_ENTRIES = 100_000
_LINKS_AT_ONCE = 500
_MAKE_LINKS = 'while [ $# -gt 0 ]; do ln -sfn -- "$1" "$2" || exit; shift 2; done'
T = TypeVar("T")
Operation = Generator[MethodCall[Any], Any, T]
Progress = Callable[[int, int], None]
Links = Literal["refuse", "skip"]


class Counter:
    """Tells `progress` how many bytes of how many are done, after each piece."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self._progress = progress
        self._total = total
        self._done = 0
        self.add(0)

    def add(self, size: int) -> None:
        self._done += size
        if self._progress is not None:
            self._progress(self._done, max(self._total, self._done))


class Transfers:
    def __init__(self, sandbox: str) -> None:
        self.sandbox = sandbox

    def fs(self, operation: str, result: Any, **params: Any) -> MethodCall[Any]:
        return MethodCall(f"fs/{operation}", {"sandbox": self.sandbox, **params}, result)

    def read_pieces(
        self, path: str, offset: int, length: int | None, take: Callable[[bytes], None]
    ) -> Operation[None]:
        """`take` gets the file piece by piece, up to the size that it has at the beginning."""
        left = length
        while left is None or left > 0:
            wanted = PIECE if left is None else min(PIECE, left)
            piece: FileData = yield self.fs(
                "read", FileData, path=path, offset=offset, length=wanted
            )
            take(_content(piece))
            offset += piece.bytes
            left = piece.size - offset if left is None else left - piece.bytes
            if piece.eof or not piece.bytes:
                return

    def write_piece(
        self, path: str, data: bytes, mode: int | None, *, first: bool, last: bool
    ) -> MethodCall[Any]:
        """Before the last piece the file stays writable, whatever its mode will be."""
        mode = mode if mode is None or last else mode | 0o600
        given = {} if mode is None else {"mode": mode}
        base64 = b64encode(data).decode()
        return self.fs("write", Written, path=path, base64=base64, append=not first, **given)

    def upload(
        self, local: str | Path, path: str, progress: Progress | None, links: Links
    ) -> Operation[None]:
        source = Path(local)
        if not source.is_dir():
            real, status = source.resolve(), source.stat()
            one = LocalEntry(real.name, "file", status.st_size, status.st_mode & 0o777)
            counter = Counter(progress, one.size)
            yield from self._upload_file(real.parent, one, path, counter)
            return
        with local_tree.pinned(source) as root:
            entries = [entry for entry in local_tree.scan(root) if _is_kept(entry, links)]
            counter = Counter(progress, sum(entry.size for entry in entries))
            yield self.fs("mkdir", Any, path=path)
            for entry in entries:
                target = posixpath.join(path, entry.name)
                if entry.type == "dir":
                    yield self.fs("mkdir", Any, path=target)
                elif entry.type == "file":
                    yield from self._upload_file(root, entry, target, counter)
        yield from self._make_links(path, [e for e in entries if e.type == "symlink"])

    def _upload_file(
        self, root: Root, entry: LocalEntry, path: str, counter: Counter
    ) -> Operation[None]:
        with local_tree.opened(root, entry.name) as file:
            data, first = file.read(PIECE), True
            while data or first:
                more = file.read(PIECE)
                yield self.write_piece(path, data, entry.mode, first=first, last=not more)
                counter.add(len(data))
                data, first = more, False

    def _make_links(self, path: str, links: list[LocalEntry]) -> Operation[None]:
        """By a command: there is no method that makes a link."""
        for at in range(0, len(links), _LINKS_AT_ONCE):
            words = [
                word
                for link in links[at : at + _LINKS_AT_ONCE]
                for word in (link.target, posixpath.join(path, link.name))
            ]
            params = {"argv": ["/bin/sh", "-c", _MAKE_LINKS, "sh", *words], "sandbox": self.sandbox}
            result: ExecuteResult = yield MethodCall("execute", params, ExecuteResult)
            if result.exit_code != 0:
                raise OSError(errno.EIO, f"links could not be made: {result.stderr.text}", path)

    def download(
        self, path: str, local: str | Path, progress: Progress | None, links: Links
    ) -> Operation[None]:
        target = Path(local)
        status: FileStatus = yield self.fs("stat", FileStatus, path=path, follow=True)
        if status.type != "dir":
            target.parent.mkdir(parents=True, exist_ok=True)
            counter = Counter(progress, status.size)
            yield from self._download_file(path, target.parent, target.name, status.mode, counter)
            return
        entries = yield from self._entries(path, links)
        counter = Counter(progress, sum(entry.size for entry in entries))
        target.mkdir(parents=True, exist_ok=True)
        with local_tree.pinned(target) as root:
            for entry in entries:
                if entry.type == "dir":
                    local_tree.make_folder(root, entry.name)
                elif entry.type == "file":
                    source = posixpath.join(path, entry.name)
                    yield from self._download_file(source, root, entry.name, entry.mode, counter)
                else:
                    local_tree.make_link(root, entry.name, entry.target)

    def _download_file(
        self, path: str, root: Root, name: str, mode: int, counter: Counter
    ) -> Operation[None]:
        """What has this name here is replaced once the file could be read."""
        first: FileData = yield self.fs("read", FileData, path=path, offset=0, length=PIECE)
        with local_tree.replaced(root, name, mode) as file:

            def take(data: bytes) -> None:
                file.write(data)
                counter.add(len(data))

            take(_content(first))
            if first.bytes and not first.eof:
                yield from self.read_pieces(path, first.bytes, first.size - first.bytes, take)

    def _entries(self, path: str, links: Links) -> Operation[list[LocalEntry]]:
        """All names and links are checked before anything is written. What is masked is left out:
        an empty file would take the place of a secret."""
        listed = yield from self.tree(path)
        entries: list[LocalEntry] = []
        for one in listed:
            local_tree.check_name(one.name)
            if one.masked:
                continue
            if one.type == "symlink":
                place = posixpath.join(path, one.name)
                link: FileStatus = yield self.fs("stat", FileStatus, path=place, follow=False)
                entry = LocalEntry(one.name, "symlink", target=link.target or "")
                entries += [entry] if _is_kept(entry, links) else []
            elif one.type == "dir":
                entries.append(LocalEntry(one.name, "dir"))
            elif one.type == "file":
                entries.append(LocalEntry(one.name, "file", one.size, one.mode))
        return entries

    def tree(self, path: str) -> Operation[list[FolderEntry]]:
        """Everything below a folder; folder by folder where one answer cannot hold it."""
        found: FolderList = yield self._list(path, recursive=True)
        if not found.truncated:
            return found.entries
        top = yield self._list(path, recursive=False)
        check_whole(path, top)
        entries: list[FolderEntry] = []
        for entry in top.entries:
            entries.append(entry)
            if entry.type == "dir" and not entry.masked:
                below = yield from self.tree(posixpath.join(path, entry.name))
                entries += [_moved(one, entry.name) for one in below]
        return entries

    def _list(self, path: str, *, recursive: bool) -> MethodCall[Any]:
        return self.fs("list", FolderList, path=path, recursive=recursive, limit=MOST_ENTRIES)


def _content(piece: FileData) -> bytes:
    return a2b_base64(piece.data) if piece.encoding == "base64" else piece.data.encode()


def check_whole(path: str, found: FolderList) -> None:
    if found.truncated:
        message = f"the folder has more than {len(found.entries)} entries; give a limit"
        raise OSError(errno.EOVERFLOW, message, path)


def _moved(entry: FolderEntry, folder: str) -> FolderEntry:
    from msgspec.structs import replace

    return replace(entry, name=f"{folder}/{entry.name}")


def _is_kept(entry: LocalEntry, links: Links) -> bool:
    """UnsafeLink for one that leads out, unless such links are to be left out."""
    if entry.type != "symlink":
        return True
    try:
        local_tree.check_link(entry.name, entry.target)
    except UnsafeLink:
        if links != "skip":
            raise
        return False
    return True
