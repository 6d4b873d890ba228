"""A small /etc for sandboxes of the minimal base, kept as folders of the daemon and bound whole.

One bind instead of one for each file keeps the start fast. A copy is made again when its source has
changed, so a new resolv.conf or CA reaches the next sandbox. Each set of grants in /etc has a copy
of its own: those that no sandbox uses are removed, except the last few.
"""

from __future__ import annotations

import grp
import hashlib
import os
import pwd
import secrets
import shutil
import socket
import stat
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from ipaddress import IPv4Address

import anyio.to_thread
import msgspec

from sandboxd import event_loop
from sandboxd.concurrency.cached_fact import CachedFact
from sandboxd.linux.file_stamp import FileStamp, file_stamp
from sandboxd.linux.removal import remove_tree
from sandboxd.linux.rootfs.etc_data import COPIED, NSSWITCH
from sandboxd.linux.rootfs.state import StateFolder

Seen = tuple[tuple[str, FileStamp], ...]
Stamp = tuple[str, Seen, Seen | None]
MOST_UNUSED = 4
NESTED_S = 10.0  # a look at hundreds of files takes milliseconds
_EDITED = ("", "passwd", "group", "hosts", "resolv.conf", "ld.so.cache", "ssl/certs")
_WATCHED = ("passwd", "group", "hosts", "resolv.conf", *COPIED)


class EtcRequest(msgspec.Struct, frozen=True):
    """`mount_points`: (path below /etc, is a folder) that grants will be mounted on."""

    uid: int
    gid: int
    network: bool
    mount_points: tuple[tuple[str, bool], ...] = ()


class _Known(msgspec.Struct, frozen=True):
    path: str
    stamp: Stamp


class CuratedEtc:
    def __init__(self, state: StateFolder, source: str = "/etc") -> None:
        self._state = state
        self._source = source
        self._known: dict[EtcRequest, _Known] = {}
        self._signature = CachedFact(self.signature)
        self._nested: Seen = ()
        self._nested_until = float("-inf")
        self._uses: Counter[str] = Counter()  # folders; in the order in which they came into use

    async def make(self, request: EtcRequest) -> None:
        """`folder(wish)` is made, in a thread: a copy has hundreds of files."""
        await self._signature.fresh()
        if not self._is_known(request):
            await anyio.to_thread.run_sync(self.folder, request)

    @contextmanager
    def hold(self, request: EtcRequest) -> Iterator[None]:
        """`folder(wish)` stays."""
        path = self.folder(request)
        before = self._uses.pop(path, 0)
        self._uses[path] = before + 1
        try:
            yield
        finally:
            self._uses[path] -= 1
            self._remove_unused()

    def _remove_unused(self) -> None:
        unused = [path for path, uses in self._uses.items() if not uses]
        for path in unused[: max(0, len(unused) - MOST_UNUSED)]:
            del self._uses[path]
            self._known = {request: one for request, one in self._known.items() if one.path != path}
            gone = f"{path}.{secrets.token_hex(4)}.gone"
            with suppress(OSError):
                os.rename(path, gone)
                event_loop.run_in_thread(remove_tree, gone)

    def _is_known(self, request: EtcRequest) -> bool:
        known = self._known.get(request)
        return known is not None and known.stamp == self._stamp()

    def folder(self, request: EtcRequest) -> str:
        """The folder to bind on /etc, made if it is not there yet."""
        if self._is_known(request):
            return self._known[request].path
        stamp = self._stamp()
        path = self._made(request)
        self._known[request] = _Known(path, stamp)
        return path

    def _made(self, request: EtcRequest) -> str:
        sources = request, socket.gethostname(), self.signature()
        key = hashlib.sha256(repr(sources).encode()).hexdigest()[:16]
        path = os.path.join(self._state.folder("etc"), key)
        if not os.path.isdir(path):
            partial = f"{path}.{secrets.token_hex(4)}.partial"
            os.mkdir(partial, 0o755)
            os.chmod(partial, 0o755)
            self._fill(partial, request)
            try:
                os.rename(partial, path)
            except OSError:  # another thread was faster
                remove_tree(partial)
        return path

    def names(self, addresses: Mapping[str, IPv4Address]) -> str:
        """A folder for a sandbox in which only these hosts exist."""
        nsswitch = self._nsswitch()
        key = hashlib.sha256(repr((sorted(addresses.items()), nsswitch)).encode()).hexdigest()[:16]
        path = os.path.join(self._state.folder("names"), key)
        if not os.path.isdir(path):
            partial = f"{path}.partial"
            shutil.rmtree(partial, ignore_errors=True)
            os.mkdir(partial, 0o755)
            os.chmod(partial, 0o755)
            lines = [f"{address}\t{name}" for name, address in addresses.items()]
            _write(partial, "hosts", _hosts() + _lines(lines))
            _write(partial, "resolv.conf", "nameserver 127.0.0.1\n")
            _write(partial, "nsswitch.conf", nsswitch)
            os.rename(partial, path)
        return path

    def _nsswitch(self) -> str:
        """The host's, except how host names are found: other services there cannot know them."""
        try:
            path = os.path.join(self._source, "nsswitch.conf")
            with open(path, encoding="utf-8", errors="surrogateescape") as file:
                lines = file.read().splitlines()
        except OSError:
            return NSSWITCH
        kept = [line for line in lines if not line.lstrip().startswith("hosts:")]
        return _lines([*kept, "hosts: files dns"])

    def stamp(self) -> Stamp:
        """What changes with the sources: at once for the folder and the files that are edited in
        place, for others a moment later."""
        self._signature.known()
        return self._stamp()

    def _stamp(self) -> Stamp:
        return socket.gethostname(), tuple(self._seen(_EDITED)), self._signature.value

    def signature(self) -> Seen:
        """Everything that is copied, through symlinks. For a thread."""
        now = time.monotonic()
        if now >= self._nested_until:
            self._nested = tuple(self._seen(self._files_in_folders()))
            self._nested_until = now + NESTED_S
        return *self._seen(_WATCHED), *self._nested

    def _files_in_folders(self) -> Iterator[str]:
        for folder in COPIED:
            for path, _, files in os.walk(os.path.join(self._source, folder)):
                yield from (os.path.relpath(f"{path}/{name}", self._source) for name in files)

    def _seen(self, names: Iterable[str]) -> Iterator[tuple[str, FileStamp]]:
        for name in names:
            yield name, file_stamp(f"{self._source}/{name}")  # at each use of a sandbox

    def _fill(self, into: str, request: EtcRequest) -> None:
        for name in COPIED:
            _copy(os.path.join(self._source, name), os.path.join(into, name))
        _write(into, "nsswitch.conf", NSSWITCH)
        _write(into, "passwd", _passwd(request.uid, request.gid))
        _write(into, "group", _group(request.gid))
        _write(into, "hosts", _hosts())
        _write(into, "hostname", socket.gethostname() + "\n")
        if request.network:
            _copy(os.path.realpath(os.path.join(self._source, "resolv.conf")),
                  os.path.join(into, "resolv.conf"))  # fmt: skip
        _link(into, "mtab", "/proc/self/mounts")
        for path, is_dir in request.mount_points:
            _mount_point(into, path, is_dir=is_dir)


def _copy(source: str, target: str) -> None:
    """Copy symlinks as they are, and world-readable files and folders; nothing else."""
    try:
        status = os.lstat(source)
    except OSError:
        return
    if stat.S_ISLNK(status.st_mode):
        os.symlink(os.readlink(source), target)
    elif stat.S_ISDIR(status.st_mode) and status.st_mode & 0o005 == 0o005:
        os.mkdir(target, 0o755)
        os.chmod(target, 0o755)
        for name in os.listdir(source):
            _copy(os.path.join(source, name), os.path.join(target, name))
    elif stat.S_ISREG(status.st_mode) and status.st_mode & 0o004:
        shutil.copyfile(source, target)
        os.chmod(target, 0o644)


def _write(into: str, name: str, text: str) -> None:
    path = os.path.join(into, name)
    with open(path, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(text)
    os.chmod(path, 0o644)


def _link(into: str, name: str, target: str) -> None:
    os.symlink(target, os.path.join(into, name))


def _mount_point(into: str, path: str, *, is_dir: bool) -> None:
    target = os.path.join(into, path)
    os.makedirs(target if is_dir else os.path.dirname(target), mode=0o755, exist_ok=True)
    if not is_dir and not os.path.lexists(target):
        _write(os.path.dirname(target), os.path.basename(target), "")


def _passwd(uid: int, gid: int) -> str:
    lines = {0: "root:x:0:0:root:/root:/bin/sh"}
    try:
        entry = pwd.getpwuid(uid)
        lines[uid] = f"{entry.pw_name}:x:{uid}:{gid}::{entry.pw_dir}:{entry.pw_shell or '/bin/sh'}"
    except KeyError:
        lines.setdefault(uid, f"user{uid}:x:{uid}:{gid}::/:/bin/sh")
    lines.setdefault(65534, "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin")
    return _lines(lines.values())


def _group(gid: int) -> str:
    lines = {0: "root:x:0:", 5: "tty:x:5:"}
    try:
        lines[gid] = f"{grp.getgrgid(gid).gr_name}:x:{gid}:"
    except KeyError:
        lines.setdefault(gid, f"group{gid}:x:{gid}:")
    lines.setdefault(65534, "nogroup:x:65534:")
    return _lines(lines.values())


def _hosts() -> str:
    name = socket.gethostname()
    return f"127.0.0.1\tlocalhost\n127.0.1.1\t{name}\n::1\tlocalhost ip6-localhost ip6-loopback\n"


def _lines(lines: Iterable[str]) -> str:
    return "".join(line + "\n" for line in lines)
