"""All sessions: opening, attaching, changing and closing them, and which callers may name each."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from sandboxd.config.config import Config
from sandboxd.supervisor.budgets import ledger
from sandboxd.supervisor.budgets.amounts import Amounts
from sandboxd.supervisor.budgets.ledger import USER, Account, check_budget
from sandboxd.supervisor.sessions.modes import is_wider, narrower
from sandboxd.supervisor.sessions.session import Session
from sandboxd.supervisor.sessions.store import NamedSession, SessionStore, StoredGrant
from sandboxd.supervisor.sessions.tmp import SessionTmps
from sandboxd_proto.errors import Busy, Conflict, InvalidParams, NotFound, Unauthorized
from sandboxd_proto.messages.session import Budget, Mode, OnDenial, SessionInfo
from sandboxd_proto.secret import Secret

LONGEST_NAME = 128
LONGEST_TITLE = 1024
MOST_FORMER = 1024


class Sessions:
    def __init__(self, config: Config, store: SessionStore) -> None:
        self._config = config
        self.store = store
        self._by_id: dict[str, Session] = {}
        self._by_name: dict[str, Session] = {}
        self._by_connection: dict[object, Session] = {}
        # Whether commands of a session share a /tmp: the backend decides.
        self.shares_tmp: Callable[[], bool] = lambda: False
        limits = Budget(**{n: getattr(config.budget, n) for n in config.budget.__struct_fields__})
        self.user = Account(USER, None, check_budget(limits), time.monotonic())
        # What a name keeps besides its restrictions, for the owner of its token.
        self.grants_of: Callable[[Session], list[StoredGrant]] = lambda session: []
        self.on_resumed: Callable[[Session, list[StoredGrant]], None] = lambda session, kept: None
        self.tmps: SessionTmps | None = None
        self._former: dict[str, set[str]] = {}

    # finding

    def of_connection(self, connection: object) -> Session:
        """The session that a connection is attached to, else its own implicit one."""
        found = self._by_connection.get(connection)
        if found is None:
            found = self._new(None, self._config.approvals.widest_mode, Budget())
            found.implicit = True
            found.connections.add(connection)
            self._by_connection[connection] = found
        if not found.is_open:
            raise NotFound(
                f"the session {found.id} was closed", field="session",
                remedy="open or attach to another session",
            )  # fmt: skip
        return found

    def find(self, caller: Session, session_id: str | None) -> Session:
        """The caller's own session, or the one of this id at or below it. NotFound for others."""
        if session_id is None:
            return caller
        found = self._by_id.get(session_id)
        if found is None or not found.is_open or not found.is_below(caller):
            raise unknown_session_error(session_id)
        return found

    def any(self, session_id: str) -> Session:
        """For approvers, who may name every session."""
        found = self._by_id.get(session_id)
        if found is None:
            raise unknown_session_error(session_id)
        return found

    def named(self, name: str) -> Session | None:
        return self._by_name.get(name)

    def check_name(self, name: str, token: Secret | None) -> None:
        """Conflict for a name that is live; Unauthorized for a token that is not the name's."""
        if name in self._by_name:
            raise Conflict(
                f"a session named {name!r} is open", reason="name", field="name",
                remedy="give its token too, or choose another name",
            )  # fmt: skip
        if token is not None and not self._is_owner(name, token):
            raise wrong_token_error()

    def _is_owner(self, name: str, token: Secret | None) -> bool:
        stored = self.store.find(name)
        if stored is None or not stored.token_digest:
            return token is None
        return token is not None and Secret(stored.token_digest).matches(token.digest())

    def get(self, session_id: str) -> Session | None:
        return self._by_id.get(session_id)

    def all(self) -> list[Session]:
        return [s for s in self._by_id.values() if not s.implicit or s.executions or s.approvals]

    def every(self) -> list[Session]:
        """Implicit ones too."""
        return list(self._by_id.values())

    @property
    def plan_mode(self) -> bool:
        """The daemon's own plan flag, which applies to every session."""
        return self.store.stored.plan

    def set_plan_mode(self, on: bool) -> None:
        self.store.set_plan(on)

    def user_info(self, now: float) -> SessionInfo:
        """The user's whole daemon, as the root of all sessions."""
        return SessionInfo(
            session=USER, parent=None, depth=-1, name=None, title=None,
            mode=self._config.approvals.widest_mode, plan=self.plan_mode, state="open",
            preset=self._config.preset, workspace=None, on_denial="report",
            budget=self.user.limits, usage=self.user.usage(now), connections=0,
            executions=len(self.user.started), approvals=0, opened_ms=0.0,
        )  # fmt: skip

    def attached(self, connection: object) -> Session | None:
        """The session of a connection, closed or not; None if it has none yet."""
        return self._by_connection.get(connection)

    # opening and closing

    def open(
        self, parent: Session | None, *, mode: Mode, plan: bool, name: str | None = None,
        title: str | None = None, preset: str | None = None, workspace: str | None = None,
        budget: Budget | None = None, on_denial: OnDenial | None = None,
        linger_secs: float | None = None, token: Secret | None = None,
    ) -> tuple[Session, Secret, bool]:  # fmt: skip
        """The session, its token, and whether the name brought restrictions back."""
        check_texts(name, title)
        if linger_secs is not None and not 0 <= linger_secs <= 86400:
            raise InvalidParams("linger_secs must be 0 to 86400", field="linger_secs")
        if len(self._by_id) >= self._config.sessions.max_sessions:
            raise Busy(
                f"{self._config.sessions.max_sessions} sessions are open already",
                remedy="close one, or raise [sessions] max_sessions in the config",
            )
        if name is not None:
            self.check_name(name, token)
        elif token is not None:
            raise InvalidParams(
                "a token is for a name that was open before", field="token",
                remedy="give the name too; session/attach joins a session by its ID and token",
            )  # fmt: skip
        if parent is not None:
            ledger.check_depth(parent.account)
            for above in parent.upwards():
                if is_wider(mode, above.mode):
                    raise self.wider_than_parent_error(mode, above)
        session = self._new(parent, mode, check_budget(budget or Budget()))
        session.name, session.title, session.plan = name, title, plan
        session.preset = preset or ("workspace-write" if workspace else "read-only")
        session.workspace = workspace
        session.on_denial = on_denial or ("report" if mode == "force" else "offer")
        session.linger_secs = (
            self._config.sessions.linger_secs if linger_secs is None else linger_secs
        )
        resumed = self._restore(session, token)
        token = token or Secret(os.urandom(32).hex())
        session.token_digest = token.digest()
        if self.tmps is not None and self.shares_tmp():
            self.tmps.open(session)
        if name is not None:
            self._by_name[name] = session
        self.remember(session)
        return session, token, resumed

    def wider_than_parent_error(self, mode: Mode, parent: Session) -> Unauthorized:
        return Unauthorized(
            f"a session cannot be wider ({mode}) than its parent ({parent.mode})",
            reason="mode", field="mode", remedy=f"ask for {parent.mode} or less",
        )  # fmt: skip

    def _new(self, parent: Session | None, mode: Mode, budget: Budget) -> Session:
        account = Account("", parent.account if parent else self.user, budget, time.monotonic())
        session = Session(account, parent, mode)
        account.session = session.id
        self._by_id[session.id] = session
        for above in session.upwards():
            above.family.add(session.id)
        if parent is not None:
            parent.children.append(session)
        return session

    def _restore(self, session: Session, token: Secret | None) -> bool:
        """The restrictions of a name come back; they only narrow. With its token, its grants and
        what ran in it do too."""
        stored = self.store.find(session.name) if session.name else None
        if session.name is None or stored is None:
            return False
        session.owns_name = self._is_owner(session.name, token)
        if session.owns_name:
            session.family |= self._former.get(session.name, set())
            self.on_resumed(session, stored.grants)
        session.mode = narrower(session.mode, stored.mode)
        session.plan = session.plan or stored.plan
        session.refused.update(stored.refused)
        spent = Amounts(stored.tokens_in, stored.tokens_out, stored.cost_micros)
        session.account.amounts = spent
        session.account.finished_runtime = stored.tool_runtime_secs
        session.account.opened_at -= stored.wall_time_secs
        return True

    def remember(self, session: Session) -> None:
        """Store what outlives a named session."""
        if session.name is None:
            return
        amounts, now = session.account.amounts, time.monotonic()
        before = self.store.find(session.name)
        token_digest, grants = session.token_digest, self.grants_of(session)
        if before is not None and not session.owns_name:
            token_digest, grants = before.token_digest, before.grants
        self.store.put(
            session.name,
            NamedSession(
                mode=session.mode, plan=session.plan, token_digest=token_digest, grants=grants,
                wall_time_secs=round(now - session.account.opened_at, 3),
                tokens_in=amounts.tokens_in, tokens_out=amounts.tokens_out,
                cost_micros=amounts.cost_micros,
                tool_runtime_secs=round(session.account.runtime(now), 6),
                refused=sorted(session.refused),
            ),
        )  # fmt: skip

    def attach(self, connection: object, session_id: str, token: Secret) -> Session:
        found = self._by_id.get(session_id)
        if found is None or found.implicit or not found.is_open:
            raise unknown_session_error(session_id)
        if not found.matches(token):
            raise wrong_token_error()
        self.move(connection, found)
        return found

    def move(self, connection: object, session: Session) -> None:
        """Attach a connection to a session; it leaves the one that it was in."""
        self.leave(connection)
        session.connections.add(connection)
        session.left_at = None
        self._by_connection[connection] = session

    def leave(self, connection: object) -> Session | None:
        """A connection ended or went to another session."""
        before = self._by_connection.pop(connection, None)
        if before is None:
            return None
        before.connections.discard(connection)
        if before.implicit and not before.connections and not before.executions:
            self.forget(before)
        elif not before.connections:
            before.left_at = time.monotonic()
        return before

    def close(self, session: Session) -> None:
        """State only: its executions and approvals are ended by the caller, children first."""
        session.state = "closed"
        self.remember(session)
        if session.name is not None:
            self._former[session.name] = set(session.family)
            while len(self._former) > MOST_FORMER:
                self._former.pop(next(iter(self._former)))
        self.forget(session)

    def forget(self, session: Session) -> None:
        self._by_id.pop(session.id, None)
        if session.name is not None and self._by_name.get(session.name) is session:
            del self._by_name[session.name]
        if session.parent is not None and session in session.parent.children:
            session.parent.children.remove(session)

    def abandoned(self, now: float) -> list[Session]:
        """Sessions that were unused for their linger time."""
        return [
            session for session in list(self._by_id.values())
            if session.is_idle and session.left_at is not None
            and (session.implicit or now - session.left_at >= session.linger_secs)
        ]  # fmt: skip


def wrong_token_error() -> Unauthorized:
    return Unauthorized(
        "this is not the token of the session", reason="token", field="token",
        remedy="use the token that session/open answered",
    )  # fmt: skip


def unknown_session_error(session_id: str) -> NotFound:
    return NotFound(
        f"there is no session {session_id!r}", field="session",
        remedy="`session/list` shows those that this connection may use",
    )  # fmt: skip


def check_texts(name: str | None, title: str | None) -> None:
    if name is not None and not 0 < len(name) <= LONGEST_NAME:
        raise InvalidParams(f"a name has 1 to {LONGEST_NAME} characters", field="name")
    if title is not None and len(title) > LONGEST_TITLE:
        raise InvalidParams(f"a title has at most {LONGEST_TITLE} characters", field="title")
