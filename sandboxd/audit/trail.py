"""The trail of one daemon: records appended to JSON lines, each chained to the one before.

A record is one `write(2)` with O_APPEND on the event loop, without fsync: a killed process loses
nothing that was written. `sync` makes decisions durable; `keep_synced` does it once in a while.
"""

from __future__ import annotations

import errno
import logging
import os
import time
from collections import deque
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import anyio
import msgspec

from sandboxd.audit.files import FIRST_PREV, TrailFile, line_digest, new_file, trail_files
from sandboxd.audit.recovery import Recovered, recover
from sandboxd.audit.rotation import is_due, remove_old
from sandboxd.config.config import AuditConfig
from sandboxd.platform.current import files
from sandboxd_proto.errors import SandboxUnavailable
from sandboxd_proto.messages.audit import Head

log = logging.getLogger(__name__)
VERSION = 1
RECENT = 4096  # records that live readers find in memory
_encoder = msgspec.json.Encoder()


class TrailInUse(Exception):
    """Another daemon holds the lock on this folder."""


class Trail:
    """Made by `open_trail`. All calls are for the event loop's thread, except that
    `sync` calls fdatasync in another one."""

    def __init__(self, folder: str, config: AuditConfig, lock: int) -> None:
        self.folder = folder
        self.lost = 0
        self.failure: str | None = None
        self.on_record: Callable[[], None] | None = None
        self.recent: deque[tuple[int, bytes]] = deque(maxlen=RECENT)
        self._config = config
        self._lock = lock
        self._clock: Callable[[], float] = time.time
        self._fd = -1
        self._size = 0
        self._day = ""
        self._undigested: bytes | None = None  # the last line, if `_head` lacks its digest
        self._file: TrailFile | None = None
        self._head = Head(seq=0, sha256=FIRST_PREV)
        self._unsynced = False

    @property
    def head(self) -> Head:
        self._digest_last()
        return self._head

    def _digest_last(self) -> None:
        line, self._undigested = self._undigested, None
        if line is not None:
            self._head = Head(seq=self._head.seq, sha256=line_digest(line))

    @property
    def oldest(self) -> int:
        """The first sequence number that is still on disk."""
        stored = trail_files(self.folder)
        return stored[0].first_seq if stored else self._head.seq + 1

    def start(self, recovered: Recovered) -> None:
        self._head = recovered.head
        stored = trail_files(self.folder)
        self._open(stored[-1] if stored else new_file(self.folder, 1))
        if recovered.torn_bytes:
            self.record("audit.recovered", {"bytes": recovered.torn_bytes})
        for execution_id, session in recovered.open_executions:
            self.record("execution.lost", {}, session=session, execution_id=execution_id)
        for approval, session in recovered.open_approvals:
            data = {"approval": approval, "state": "cancelled", "reason": "daemon_restarted"}
            self.record("approval.resolved", data, session=session)

    def record(
        self, kind: str, data: dict[str, Any], *, session: str | None = None,
        execution_id: str | None = None, client: dict[str, Any] | None = None, must: bool = False,
    ) -> None:  # fmt: skip
        """Append one record. `must`: of something that may not happen without it, so that
        SandboxUnavailable is raised if it cannot be written and the config requires records."""
        now = self._clock()
        try:
            if self._fd < 0:
                self._open(self._file or new_file(self.folder, self._head.seq + 1))
            if self.lost:
                lost, self.lost = self.lost, 0
                try:
                    self._append(timestamp(now), "audit.gap", {"lost": lost}, None, None, None)
                except OSError:
                    self.lost = lost
                    raise
                self.failure = None
            at = timestamp(now)
            if is_due(self._size, self._day, at[:10], self._config):
                self._rotate(now)
            self._day = at[:10]
            self._append(at, kind, data, session, execution_id, client)
            if not must:  # else something waits for the record, and not for its digest
                self._digest_last()
        except OSError as error:
            self._note_failure(error)
            if must and self._config.required:
                raise no_record_error(self.failure) from None

    def _append(
        self, at: str, kind: str, data: dict[str, Any], session: str | None,
        execution_id: str | None, client: dict[str, Any] | None,
    ) -> None:  # fmt: skip
        before = self.head
        seq = before.seq + 1
        line = _encoder.encode(
            {"v": VERSION, "seq": seq, "at": at, "type": kind, "session": session,
             "execution_id": execution_id, "client": client, "data": data,
             "prev": before.sha256}
        ) + b"\n"  # fmt: skip
        written = os.write(self._fd, line)
        if written != len(line):
            # A full disk: take the partial line back, so that the file stays readable.
            os.ftruncate(self._fd, self._size)
            raise OSError(errno.ENOSPC, "the record was written in part")
        self._size += written
        self._head, self._undigested = Head(seq=seq, sha256=""), line
        self._unsynced = True
        self.recent.append((seq, line))
        if self.on_record is not None:
            self.on_record()

    def _note_failure(self, error: OSError) -> None:
        reason = f"the audit trail in {self.folder} cannot be written: {error.strerror or error}"
        if self.failure is None:
            log.error("%s", reason)
        self.failure = reason
        self.lost += 1

    def _rotate(self, now: float) -> None:
        before = self._file
        files.sync(self._fd)
        os.close(self._fd)
        self._open(new_file(self.folder, self._head.seq + 1))
        at = timestamp(now)
        name = os.path.basename(before.path) if before else ""
        head = {"seq": self.head.seq, "sha256": self.head.sha256}
        self._append(at, "audit.rotated", {"file": name, "head": head}, None, None, None)
        for removed in remove_old(self.folder, now, self._config):
            self._append(at, "audit.removed", removed, None, None, None)

    def _open(self, file: TrailFile) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | files.PRIVATE | files.NO_FOLLOW
        self._fd = os.open(file.path, flags, 0o600)
        status = os.fstat(self._fd)
        self._size = status.st_size
        self._day = timestamp(status.st_mtime if status.st_size else self._clock())[:10]
        self._file = file

    async def sync(self) -> None:
        """Durable when it returns: for decisions, grants, modes and raised budgets."""
        if self._fd >= 0 and self._unsynced:
            self._unsynced = False
            try:
                descriptor = os.dup(self._fd)
            except OSError:  # no more descriptors
                self._sync_here(self._fd)
                return
            try:
                with anyio.CancelScope(shield=True):
                    await anyio.to_thread.run_sync(files.sync, descriptor)
            except OSError as error:
                self._note_failure(error)
            except RuntimeError:  # no more threads for this user: durable all the same
                self._sync_here(descriptor)
            finally:
                os.close(descriptor)

    def _sync_here(self, descriptor: int) -> None:
        try:
            files.sync(descriptor)
        except OSError as error:
            self._note_failure(error)

    async def keep_synced(self) -> None:
        while True:
            await anyio.sleep(self._config.sync_secs)
            await self.sync()

    def close(self) -> None:
        if self._fd >= 0:
            files.sync(self._fd)
            os.close(self._fd)
            self._fd = -1
        os.close(self._lock)


def open_trail(folder: str, config: AuditConfig) -> Trail:
    """TrailInUse if another daemon uses this folder. Recovers what a killed daemon left."""
    os.makedirs(folder, mode=0o700, exist_ok=True)
    lock = os.open(os.path.join(folder, "lock"), os.O_RDWR | os.O_CREAT | files.PRIVATE, 0o600)
    try:
        files.lock(lock, wait=False)
    except OSError:
        os.close(lock)
        raise TrailInUse(f"another daemon writes the audit trail in {folder}") from None
    trail = Trail(folder, config, lock)
    trail.start(recover(folder))
    return trail


def no_record_error(reason: str | None) -> SandboxUnavailable:
    return SandboxUnavailable(
        f"{reason or 'the audit trail could not be opened'}; the config requires a record of "
        "everything that runs",
        remedy="free space on that file system, or set [audit] required = false",
    )


def timestamp(seconds: float) -> str:
    """UTC with milliseconds: 2026-01-31T23:59:59.999Z."""
    whole = int(seconds)
    return f"{_second(whole)}.{int((seconds - whole) * 1000):03d}Z"


@lru_cache(maxsize=2)
def _second(whole: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole))
