"""The records of the audit trail, redacted. The only module that writes it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from sandboxd.audit.redact import redact_argv, redact_text, secret_values
from sandboxd.audit.trail import Trail, no_record_error
from sandboxd.supervisor.approvals.approval import Approval, Outcome
from sandboxd.supervisor.sessions.session import Session
from sandboxd.traffic import GateRefusal
from sandboxd_proto.errors import SandboxdError
from sandboxd_proto.messages.approval import Requester
from sandboxd_proto.messages.execute import ExecuteResult

LONGEST_WORD = 4096
LONG_LINE = 4096  # words and characters of a command line that is not kept
MOST_WORDS = 4096  # that are recorded: redaction takes time for each


def _recorded(argv: Sequence[str], env: Sequence[tuple[str, str]]) -> list[str]:
    words = [cut_word(word) for word in redact_argv(argv[:MOST_WORDS], secret_values(env))]
    left = len(argv) - MOST_WORDS
    return words if left <= 0 else [*words, f"[{left} more words]"]


# Clients send the same command again and again.
_known_line = lru_cache(maxsize=64)(_recorded)


class Recorder:
    """Without a trail (it could not be opened) nothing is recorded; with `required` nothing runs
    then."""

    def __init__(self, trail: Trail | None, *, required: bool = False) -> None:
        self.trail = trail
        self._required = required

    def write(
        self, kind: str, data: Mapping[str, Any], *, session: str | None = None,
        execution_id: str | None = None, client: Requester | None = None, must: bool = False,
    ) -> None:  # fmt: skip
        """`must`: SandboxUnavailable if the config requires records and this one cannot be
        written."""
        if self.trail is not None:
            who = {"name": client.name, "pid": client.pid} if client is not None else None
            self.trail.record(
                kind, dict(data), session=session, execution_id=execution_id, client=who, must=must
            )
        elif must and self._required:
            raise no_record_error(None)

    async def durable(self, *, must: bool = False) -> None:
        if self.trail is not None:
            await self.trail.sync()
            if must and self._required and self.trail.failure is not None:
                raise no_record_error(self.trail.failure)

    # executions

    def started(
        self, execution_id: str, session: str | None, client: Requester, argv: Sequence[str],
        env: Sequence[tuple[str, str]], facts: Mapping[str, Any],
    ) -> None:  # fmt: skip
        """Before the command is handed over."""
        if self.trail is not None or self._required:
            is_long = len(argv) + sum(map(len, argv)) > LONG_LINE
            words = (_recorded if is_long else _known_line)(tuple(argv), tuple(env))
            data = {"argv": words, **facts}
            self.write(
                "execution.started", data, session=session, execution_id=execution_id,
                client=client, must=True,
            )  # fmt: skip

    def ended(
        self, session: str | None, result: ExecuteResult, env: Sequence[tuple[str, str]]
    ) -> None:
        values = secret_values(env) if result.denials else ()
        data = {
            "outcome": result.outcome,
            "exit_code": result.exit_code,
            "signal": result.signal,
            "duration_ms": result.duration_ms,
            "cpu_ms": result.usage.cpu_ms,
            "backend": result.backend,
            "denials": [
                {
                    "kind": denial.kind,
                    "operation": denial.operation,
                    "target": redact_text(denial.target or "", values) or None,
                    "confidence": denial.confidence,
                }
                for denial in result.denials
            ],
        }
        self.write("execution.ended", data, session=session, execution_id=result.execution_id)

    def egress_refused(
        self, session: str | None, execution_id: str, refusals: Sequence[GateRefusal]
    ) -> None:
        """Once for each host and execution."""
        for host in dict.fromkeys(refusal.host for refusal in refusals):
            first = next(refusal for refusal in refusals if refusal.host == host)
            data = {"host": redact_text(host), "port": first.port, "reason": first.reason}
            self.write("egress.refused", data, session=session, execution_id=execution_id)

    def failed(self, execution_id: str, session: str | None, error: SandboxdError) -> None:
        """The execution was started and has no result."""
        data = {"outcome": "error", "error": error.kind, "message": redact_text(error.message)}
        self.write("execution.ended", data, session=session, execution_id=execution_id)

    def refused(
        self, session: str | None, client: Requester, argv: Sequence[str],
        env: Sequence[tuple[str, str]], error: SandboxdError,
    ) -> None:  # fmt: skip
        data = {
            "argv": _recorded(argv, env),
            "error": error.kind,
            "message": redact_text(error.message),
        }
        self.write("execution.refused", data, session=session, client=client)

    # approvals

    def requested(self, approval: Approval) -> None:
        question = approval.question
        data = {
            "approval": approval.id,
            "kind": question.kind,
            "digest": question.digest,
            "question": redact_text(question.text, question.secrets),
            "argv": _argv(question.argv, question.secrets),
            "effect": question.effect,
            "add": question.add,
        }
        self.write(
            "approval.requested", data, session=question.session,
            execution_id=question.execution_id, client=question.client,
        )  # fmt: skip

    def resolved(self, approval: Approval, outcome: Outcome) -> None:
        """Before the decision takes effect; an allowed one must be recorded."""
        question, found = approval.question, outcome.resolution
        data = {
            "approval": approval.id,
            "kind": question.kind,
            "digest": question.digest,
            "state": outcome.state,
            "choice": found.choice,
            "reason": found.reason,
            "message": redact_text(found.message, question.secrets) if found.message else None,
            "grant": found.grant,
        }
        self.write(
            "approval.resolved", data, session=question.session,
            execution_id=question.execution_id, client=found.by, must=outcome.state == "allowed",
        )  # fmt: skip

    # sessions

    def session(
        self, kind: str, session: Session, client: Requester | None = None, *, must: bool = False
    ) -> None:
        data = {
            "parent": session.parent.id if session.parent else None,
            "name": redact_text(session.name) if session.name else None,
            "title": redact_text(session.title) if session.title else None,
            "mode": session.mode,
            "plan": session.plan,
            "state": session.state,
            "workspace": session.workspace,
            "budget": msgspec.to_builtins(session.account.limits),
        }
        self.write(f"session.{kind}", data, session=session.id, client=client, must=must)


def cut_word(word: str) -> str:
    """A long word by its beginning, its length and its digest."""
    if len(word) <= LONGEST_WORD:
        return word
    digest = hashlib.sha256(word.encode("utf-8", "surrogateescape")).hexdigest()
    return f"{word[:LONGEST_WORD]}… ({len(word)} characters, sha256:{digest})"


def _argv(argv: Sequence[str] | None, secrets: Sequence[str]) -> list[str] | None:
    return None if argv is None else [cut_word(word) for word in redact_argv(argv, secrets)]
