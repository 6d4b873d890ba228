"""The granted folders of one sandbox as copies: sent before a command, brought back after it."""

from __future__ import annotations

import os
import secrets
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import BinaryIO, TypeVar

import anyio

from sandboxd.backends.opensandbox.copies.applying import Applied, apply
from sandboxd.backends.opensandbox.copies.entries import Copied
from sandboxd.backends.opensandbox.copies.packing import CopyLimits, Packed, pack
from sandboxd.backends.opensandbox.copies.received import Archive, read_archive
from sandboxd.backends.opensandbox.copies.scope import CopyScope
from sandboxd.backends.opensandbox.copies.tar_reader import ArchiveViolation
from sandboxd.backends.opensandbox.execd import Execd
from sandboxd.backends.opensandbox.execd_files import ExecdFiles, Told
from sandboxd.concurrency.bounded_thread import run_within
from sandboxd.progress import ReportProgress
from sandboxd.types import BroughtBack
from sandboxd_proto.errors import SandboxUnavailable

AT_ONCE = 4  # threads that read or write folders
TELL_EVERY_S = 0.5
MOST_NAMED = 20
HEADERS_MAX = 1 << 10  # of one entry in an archive, its padding included
T = TypeVar("T")
UNPACK = (
    'cd / && if [ -e "$1.gone" ]; then xargs -0 rm -rf -- <"$1.gone" || exit 1; fi; '
    'tar -x -o -p -f "$1"; code=$?; [ ! -e "$1.more" ] || tar -x -o -f "$1.more" 2>/dev/null; '
    'rm -f -- "$1" "$1.gone" "$1.more"; exit $code'
)
# Without the limit a sparse file of a command would fill the sandbox's disk before it is refused.
PACK = 'made=$1; ulimit -f "$2"; shift 2; cd / && umask 077 && tar -c -f "$made" -- "$@"'


class CopyThreads:
    """Runs work on folders in threads, a few at a time. `patience_s`: for one of them."""

    def __init__(self, patience_s: float) -> None:
        self._room = anyio.Semaphore(AT_ONCE)
        self._patience_s = patience_s

    async def run(self, scope: CopyScope, work: Callable[[], T]) -> T:
        """As the user that the command would run as."""
        async with self._room:
            found: list[T] = await run_within(self._patience_s, partial(_as_user, scope, work), [])
        if not found:
            raise SandboxUnavailable(
                f"the granted folders could not be copied in {self._patience_s:g} s: their file "
                "system does not answer",
                remedy="raise [opensandbox] transfer_secs, or grant smaller folders",
            )
        return found[0]


def _as_user(scope: CopyScope, work: Callable[[], T]) -> list[T]:
    if scope.run_as is None:
        return [work()]
    from sandboxd.linux.fs_identity import acting_as

    with acting_as(scope.run_as):
        return [work()]


class WorkspaceCopy:
    """Of one sandbox. Its commands may overlap: then only the first one sends. `settings`: sent
    once, where the sandbox has room for them."""

    def __init__(
        self, execd: Execd, files: ExecdFiles, scope: CopyScope, settings: CopyScope,
        limits: CopyLimits, threads: CopyThreads,
    ) -> None:  # fmt: skip
        self._execd = execd
        self._files = files
        self._scope = scope
        self._settings = settings
        self._limits = limits
        self._threads = threads
        self._known: dict[str, Copied] = {}
        self.turn = anyio.Lock()  # held from a fetch until it is taken: an older one undoes a newer
        self._running = 0
        self._unread: list[str] = []

    @property
    def unread(self) -> tuple[str, ...]:
        """Warnings about what the sandbox lacks, because it cannot be read on this machine."""
        return tuple(
            _some(f"{_shown(path)} cannot be read, and was not copied" for path in self._unread)
        )

    # before a command

    async def send(self, progress: ReportProgress | None) -> None:
        """What changed on this machine since it was sent last. `end` follows each call."""
        async with self.turn:
            if not self._running:
                await self._send(Teller(progress, "upload"))
            self._running += 1

    def end(self) -> None:
        self._running -= 1

    async def _send(self, told: Told) -> None:
        with tempfile.TemporaryFile() as archive:
            packed = await self._threads.run(
                self._scope, partial(pack, self._scope, dict(self._known), self._limits, archive)
            )
            archive.flush()
            place = f"/tmp/.sandboxd-{secrets.token_hex(8)}.tar"
            await self._send_gone(packed, f"{place}.gone")
            await self._send_settings(f"{place}.more")
            await self._files.send(archive, place, told)
        await self._in_sandbox("unpacked", ["sh", "-c", UNPACK, "sh", place])
        self._known, self._unread = packed.now, packed.skipped

    async def _send_gone(self, packed: Packed, place: str) -> None:
        if not packed.gone:
            return
        with tempfile.TemporaryFile() as listed:
            listed.write(b"".join(os.fsencode(path) + b"\0" for path in packed.gone))
            listed.flush()
            await self._files.send(listed, place, _untold)

    async def _send_settings(self, place: str) -> None:
        if not self._settings.grants or self._known:
            return
        with tempfile.TemporaryFile() as archive:
            work = partial(pack, self._settings, {}, self._limits, archive)
            await self._threads.run(self._settings, work)
            archive.flush()
            await self._files.send(archive, place, _untold)

    # after a command

    async def fetch(self, progress: ReportProgress | None, *, goes_on: bool) -> BinaryIO | None:
        """The sandbox's own archive of the writable folders; None where there are none.

        `goes_on`: the sandbox has further commands.
        """
        paths = [path.lstrip("/") for path in self._scope.sent_back]
        if not paths:
            return None
        place = f"/tmp/.sandboxd-{secrets.token_hex(8)}.tar"
        most = self._limits.bytes + self._limits.files * HEADERS_MAX
        await self._in_sandbox(
            f"packed (more than {most} bytes are not brought back)",
            ["sh", "-c", PACK, "sh", place, str(most // 512 + 1), *paths],
        )
        archive = tempfile.TemporaryFile()  # noqa: SIM115  (its owner closes it)
        try:
            await self._files.fetch(place, archive, most, Teller(progress, "download"))
            archive.flush()
            if goes_on:
                await self._execd.capture(["rm", "-f", "--", place])
        except BaseException:
            archive.close()
            raise
        return archive

    async def take(self, fetched: BinaryIO) -> BroughtBack:
        """Write what changed into the folders of this machine."""
        archive, applied = await self._threads.run(
            self._scope, partial(self._take, fetched, self._known)
        )
        if applied.failed:
            path, why = applied.failed[0]
            raise SandboxUnavailable(
                f"{len(applied.failed)} of the changed paths could not be written on this machine: "
                f"{_shown(path)}: {why}",
                remedy="make room or correct the permissions, and run the command again",
            )
        protected = tuple((_shown(path), kept and _shown(kept)) for path, kept in applied.protected)
        return BroughtBack(tuple(_warnings(archive, applied)), protected)

    def _take(self, fetched: BinaryIO, known: dict[str, Copied]) -> tuple[Archive, Applied]:
        try:
            archive = read_archive(fetched, self._scope, self._limits)
        except ArchiveViolation as wrong:
            raise SandboxUnavailable(
                f"what the command changed was not brought back: the sandbox sent {wrong}",
                remedy="run it again; the folders of this machine are as they were",
            ) from None
        return archive, apply(archive, self._scope, known)

    async def _in_sandbox(self, what: str, argv: list[str]) -> None:
        code, _, said = await self._execd.capture(argv, timeout_s=self._files.transfer_s)
        if code != 0:
            raise SandboxUnavailable(
                f"the granted folders could not be {what} in the sandbox: "
                f"{said.strip()[-300:] or f'exit code {code}'}",
                remedy="the image needs the programs sh, tar, rm and xargs, and room for a copy; "
                "[opensandbox] copy_max_bytes and copy_max_files say how much is copied",
            )


class Teller:
    """Tells the client how far a transfer is, now and then."""

    def __init__(self, progress: ReportProgress | None, phase: str) -> None:
        self._progress = progress
        self._phase = phase
        self._last = time.monotonic()

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if self._progress is not None and (done >= total or now - self._last > TELL_EVERY_S):
            self._last = now
            self._progress(self._phase, done, total)


def _untold(done: int, total: int) -> None:
    return


def _warnings(archive: Archive, applied: Applied) -> Iterator[str]:
    yield from _some(
        f"conflict: {_shown(path)} changed on this machine while the command ran, and was not "
        f"overwritten; {_kept(kept)}"
        for path, kept in applied.conflicts
    )
    yield from _some(f"{_shown(path)} lost its set-uid or set-gid bit" for path in archive.set_id)
    yield from _some(
        f"{_shown(path)} was not brought back: it is no file, folder or link"
        for path in archive.special
    )
    yield from _some(
        f"{_shown(path)} was not brought back: it is hidden on this machine"
        for path in archive.hidden
    )


def _kept(where: str | None) -> str:
    return f"the sandbox's version is {_shown(where)}" if where else "the sandbox had removed it"


def _shown(path: str) -> str:
    """A name that a sandbox chose, for people: it may be no text, and may steer a terminal."""
    text = os.fsencode(path).decode("utf-8", "replace")
    return "".join(sign if sign.isprintable() else "?" for sign in text)


def _some(lines: Iterable[str]) -> Iterator[str]:
    each = list(lines)
    yield from each[:MOST_NAMED]
    if len(each) > MOST_NAMED:
        yield f"and {len(each) - MOST_NAMED} more like the last one"
