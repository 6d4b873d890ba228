"""What outlives a named session: mode, plan flag, usage and refusals, in one file of the daemon.

Also the daemon's own plan flag (`sandboxctl plan on`). Changed by rename, in a worker thread; a
broken file is moved aside and everything that it said counts as its strictest value.
"""

from __future__ import annotations

import logging
import os
from typing import Any, Literal

import anyio
import anyio.to_thread
import msgspec

from sandboxd.platform.current import files
from sandboxd_proto.messages.approval import Reach
from sandboxd_proto.messages.session import Mode

log = logging.getLogger(__name__)
MOST_NAMES = 4096
MOST_REFUSALS = 1024


class StoredGrant(msgspec.Struct, kw_only=True, omit_defaults=True):
    id: str
    kind: Literal["run", "widen", "egress", "refuse"]
    match: str | None = None
    add: dict[str, Any] | None = None
    reach: Reach | None = None


class NamedSession(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Grants come back only for the owner of the token with this digest."""

    mode: Mode = "default"
    plan: bool = False
    token_digest: str = ""
    tokens_in: int = 0
    tokens_out: int = 0
    cost_micros: int = 0
    tool_runtime_secs: float = 0.0
    wall_time_secs: float = 0.0
    grants: list[StoredGrant] = msgspec.field(default_factory=list)
    refused: list[str] = msgspec.field(default_factory=list)


class Stored(msgspec.Struct, kw_only=True, omit_defaults=True):
    plan: bool = False
    sessions: dict[str, NamedSession] = msgspec.field(default_factory=dict)


class SessionStore:
    def __init__(self, folder: str) -> None:
        self._path = os.path.join(folder, "sessions.json")
        self.stored = self._read()
        self.failure: str | None = None
        self._changes = self._on_disk = 0
        self._writing = anyio.Lock()

    def _read(self) -> Stored:
        try:
            with open(self._path, "rb") as file:
                return msgspec.json.decode(file.read(), type=Stored)
        except FileNotFoundError:
            return Stored()
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
            log.error("%s cannot be read (%s): plan mode is on", self._path, error)
            try:
                os.replace(self._path, self._path + ".broken")
            except OSError:
                log.exception("it cannot be moved aside")
            return Stored(plan=True)

    def find(self, name: str) -> NamedSession | None:
        return self.stored.sessions.get(name)

    def put(self, name: str, session: NamedSession) -> None:
        session.refused = session.refused[-MOST_REFUSALS:]
        self.stored.sessions.pop(name, None)
        self.stored.sessions[name] = session
        while len(self.stored.sessions) > MOST_NAMES:
            self.stored.sessions.pop(self._least_restricted())
        self._changes += 1

    def set_plan(self, on: bool) -> None:
        self.stored.plan = on
        self._changes += 1

    def _least_restricted(self) -> str:
        """The oldest name without plan mode and refusals; else the oldest."""
        names = self.stored.sessions
        free = (name for name, one in names.items() if not one.plan and not one.refused)
        return next(free, next(iter(names)))

    async def written(self) -> None:
        """Returns when every change so far is on disk, or `failure` says why not; the daemon then
        uses what it has in memory."""
        changes = self._changes
        with anyio.CancelScope(shield=True):
            async with self._writing:
                if self._on_disk >= changes:
                    return
                changes, content = self._changes, msgspec.json.encode(self.stored)
                try:
                    await anyio.to_thread.run_sync(self._write, content)
                    self._on_disk, self.failure = changes, None
                except OSError as error:
                    self.failure = f"{self._path} cannot be written: {error.strerror or error}"
                    log.error("%s", self.failure)

    def _write(self, content: bytes) -> None:
        scratch = f"{self._path}.{os.getpid()}"
        descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | files.PRIVATE, 0o600)
        with open(descriptor, "wb") as file:
            file.write(content)
        os.replace(scratch, self._path)
