"""Grants: pieces of manifest, or "any command in exactly this sandbox", that were approved.

Grants of a session live in memory. Those for a workspace are in `grants.toml` beside the config,
one readable table each, which is looked at again at every use: removing one takes effect at once
in every daemon. A broken file means no grants. They are made in `decisions`.
"""

from __future__ import annotations

import json
import logging
import os
import time
import tomllib
from collections.abc import Callable, Iterable
from typing import Any, Literal

import anyio
import anyio.to_thread
import msgspec

from sandboxd.platform.current import files
from sandboxd.policy.network.host_rules import parse_rule
from sandboxd.supervisor.sessions.effects import Given
from sandboxd.supervisor.sessions.session import Session
from sandboxd.supervisor.sessions.store import StoredGrant
from sandboxd_proto.errors import NotFound
from sandboxd_proto.messages.approval import Addition, GrantInfo, Reach

log = logging.getLogger(__name__)
GrantKind = Literal["run", "widen", "egress", "refuse"]
MOST_BYTES = 4 << 20
_UNREADABLE = (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError)


class ApprovedGrant(msgspec.Struct, frozen=True):
    """`match`: the fingerprint of a run grant, the digest of a refusal, `host:port` of egress.
    `expires`: a UTC date; the grant ends with that day. `reach`: what the sandbox of a run grant
    can, for people: `match` decides."""

    kind: GrantKind
    match: str | None = None
    add: Addition | None = None
    session: str | None = None
    workspace: str | None = None
    expires: str | None = None
    id: str = msgspec.field(default_factory=lambda: f"gr-{os.urandom(8).hex()}")
    reach: Reach | None = None

    @property
    def scope(self) -> Literal["session", "always"]:
        return "always" if self.workspace is not None else "session"

    def info(self) -> GrantInfo:
        return GrantInfo(
            grant=self.id, scope=self.scope, session=self.session, workspace=self.workspace,
            kind=self.kind, match=self.match, add=self.add, expires=self.expires, reach=self.reach,
        )  # fmt: skip


class Grants:
    def __init__(self, path: str, clock: Callable[[], float] = time.time) -> None:
        self._file = GrantsFile(path)
        self._clock = clock
        self._latest = ""
        self._of_sessions: dict[str, list[ApprovedGrant]] = {}

    @property
    def path(self) -> str:
        return self._file.path

    def _today(self) -> str:
        """The latest date seen so far: a clock that is set back revives no grant."""
        self._latest = max(self._latest, utc_date(self._clock()))
        return self._latest

    def covering(self, session: Session, workspace: str | None) -> list[ApprovedGrant]:
        """Those of the session, of the sessions above it, and of the workspace (of a linked git
        worktree: of its main checkout)."""
        found = [g for one in session.upwards() for g in self._of_sessions.get(one.id, ())]
        stored = self._file.read() if workspace is not None else ()
        if stored and workspace is not None:
            today = self._today()
            found += [
                grant for grant in stored
                if grant.workspace == workspace and (grant.expires or today) >= today
            ]  # fmt: skip
        return found

    def run_grant(self, session: Session, workspace: str | None, plan: str) -> str | None:
        """The grant that allows any command in a sandbox with this fingerprint."""
        for grant in self.covering(session, workspace):
            if grant.kind == "run" and grant.match == plan:
                return grant.id
        return None

    def allows_host(self, session: Session, workspace: str | None, entry: str) -> bool:
        hosts = [
            host for grant in self.additions(session, workspace)
            for host in (grant.add or {}).get("network", {}).get("hosts", ())
        ]  # fmt: skip
        wanted = parse_rule(entry)
        return any(parse_rule(host).includes(wanted) for host in hosts)

    def additions(self, session: Session, workspace: str | None) -> list[ApprovedGrant]:
        return [g for g in self.covering(session, workspace) if g.kind in ("widen", "egress")]

    def given(self, session: Session, workspace: str | None) -> Given:
        """What these add to every command."""
        added = [grant.add or {} for grant in self.additions(session, workspace)]

        def paths(field: str) -> frozenset[str]:
            return frozenset(path for add in added for path in add.get(field, ()))

        return Given(
            write=paths("fs_write_allow"), read=paths("fs_read_allow"),
            has_host=lambda host: self.allows_host(session, workspace, host),
        )  # fmt: skip

    async def add(self, grant: ApprovedGrant) -> None:
        """OSError if it cannot be stored."""
        if grant.workspace is None:
            self._of_sessions.setdefault(grant.session or "", []).append(grant)
            return
        today = self._today()

        def added(grants: list[ApprovedGrant]) -> list[ApprovedGrant]:
            return [*(g for g in grants if (g.expires or today) >= today), grant]

        await anyio.to_thread.run_sync(self._file.change, added)

    async def remove(self, grant_id: str) -> None:
        """NotFound if there is none."""
        for grants in self._of_sessions.values():
            for grant in grants:
                if grant.id == grant_id:
                    grants.remove(grant)
                    return
        if not any(grant.id == grant_id for grant in self._file.read()):
            raise NotFound(
                f"there is no grant {grant_id!r}", field="grant",
                remedy="grant/list shows those that exist",
            )  # fmt: skip
        await anyio.to_thread.run_sync(
            self._file.change, lambda grants: [g for g in grants if g.id != grant_id]
        )

    def stored(self, session: Session) -> list[StoredGrant]:
        """The session's own grants, in the form that is stored with its name."""
        return [
            StoredGrant(id=g.id, kind=g.kind, match=g.match, add=g.add, reach=g.reach)
            for g in self._of_sessions.get(session.id, ())
        ]

    def restore(self, session: Session, kept: Iterable[StoredGrant]) -> None:
        self._of_sessions[session.id] = [
            ApprovedGrant(g.kind, g.match, g.add, session.id, id=g.id, reach=g.reach) for g in kept
        ]

    def forget(self, session: Session) -> None:
        self._of_sessions.pop(session.id, None)

    def all(self, sessions: Iterable[Session] | None = None) -> list[ApprovedGrant]:
        """Of these sessions; without, of every session and every workspace."""
        if sessions is not None:
            return [g for one in sessions for g in self._of_sessions.get(one.id, ())]
        return [*(g for of in self._of_sessions.values() for g in of), *self._file.read()]


class GrantsFile:
    def __init__(self, path: str) -> None:
        self.path = path
        self._seen: tuple[int, int, int] | None = None
        self._grants: list[ApprovedGrant] = []

    def read(self) -> list[ApprovedGrant]:
        try:
            status = os.stat(self.path)
        except OSError:
            self._seen, self._grants = None, []
            return []
        identity = (status.st_ino, status.st_mtime_ns, status.st_size)
        if identity != self._seen:
            self._seen, self._grants = identity, self._parse()
        return self._grants

    def _parse(self) -> list[ApprovedGrant]:
        try:
            return self._load()
        except _UNREADABLE as error:
            log.error("%s cannot be read, so no grant in it counts: %s", self.path, error)
            return []

    def _load(self) -> list[ApprovedGrant]:
        with open(self.path, "rb") as file:
            document = tomllib.loads(file.read(MOST_BYTES).decode())
        return [_from_table(table) for table in document.get("grant", ())]

    def change(self, changed: Callable[[list[ApprovedGrant]], list[ApprovedGrant]]) -> None:
        os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
        lock = os.open(self.path + ".lock", os.O_RDWR | os.O_CREAT | files.PRIVATE, 0o600)
        try:
            files.lock(lock)
            text = "\n".join(_to_table(grant) for grant in changed(self._parse_fresh()))
            scratch = f"{self.path}.{os.getpid()}"
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | files.PRIVATE
            with open(os.open(scratch, flags, 0o600), "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                files.sync(file.fileno())
            os.replace(scratch, self.path)
        finally:
            os.close(lock)

    def _parse_fresh(self) -> list[ApprovedGrant]:
        """Parse the file again. A broken file is kept as `.broken`: a mistyped entry is not
        lost."""
        try:
            return self._load()
        except FileNotFoundError:
            return []
        except _UNREADABLE as error:
            log.error("%s cannot be read, and is kept as .broken: %s", self.path, error)
            os.replace(self.path, self.path + ".broken")
            return []


def _from_table(table: dict[str, Any]) -> ApprovedGrant:
    known = msgspec.convert(table, _GrantTable)
    return ApprovedGrant(
        kind=known.kind, match=known.match, add=known.add, workspace=known.workspace,
        expires=known.expires, id=known.id, reach=known.reach,
    )  # fmt: skip


class _GrantTable(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    id: str
    kind: GrantKind
    workspace: str
    match: str | None = None
    add: Addition | None = None
    expires: str | None = None
    reach: Reach | None = None


def _to_table(grant: ApprovedGrant) -> str:
    rows = {
        "id": grant.id, "kind": grant.kind, "workspace": grant.workspace, "match": grant.match,
        "expires": grant.expires, "add": grant.add,
        "reach": msgspec.to_builtins(grant.reach) if grant.reach is not None else None,
    }  # fmt: skip
    return "[[grant]]\n" + "".join(
        f"{key} = {_toml(value)}\n" for key, value in rows.items() if value is not None
    )


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_toml(item)}" for key, item in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    if isinstance(value, str):
        value.encode()  # UnicodeEncodeError: TOML has no form for a name that is not UTF-8
        # A JSON string is a TOML string, but for DEL, which TOML wants escaped.
        return json.dumps(value, ensure_ascii=True).replace("\x7f", "\\u007f")
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def utc_date(seconds: float) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(seconds))
