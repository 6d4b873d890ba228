"""The questions that approvers are asked: their text, digest and choices, made from a plan."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from sandboxd.audit.redact import secret_values
from sandboxd.policy.plan import Plan
from sandboxd.supervisor.approvals.approval import Question
from sandboxd.supervisor.approvals.digest import digest_of, environment_digest
from sandboxd.supervisor.approvals.display import display, escape_hidden, has_hidden
from sandboxd.supervisor.sessions.effects import fingerprint, reach_of
from sandboxd.supervisor.sessions.session import Session
from sandboxd_proto.messages.approval import Addition, ApprovalKind, Choice, Effect, Requester

CHANGED = "changed while it waited"


class RunRequest(msgspec.Struct, frozen=True):
    """What a request wants to run or open. `family` is the backend's, for the fingerprint."""

    session: Session
    client: Requester
    plan: Plan
    effect: Effect
    family: str
    argv: tuple[str, ...] = ()
    stdin: bytes = b""
    stdin_open: bool = False
    execution_id: str | None = None
    files: Mapping[str, str] | None = None

    @property
    def kind(self) -> ApprovalKind:
        return "execute" if self.argv else "sandbox"

    @property
    def fingerprint(self) -> str:
        return fingerprint(self.plan, self.family)

    def digest(self) -> str:
        return self._digest(self.session.id)

    def subject(self) -> str:
        """The request's digest without its session: refusals of a named session outlive it."""
        return self._digest(None)

    def _digest(self, session: str | None) -> str:
        return digest_of(
            {
                "session": session,
                "kind": self.kind,
                "argv": self.argv,
                "cwd": self.plan.cwd,
                "stdin": hashlib.sha256(self.stdin).hexdigest(),
                "stdin_open": self.stdin_open,
                "env": environment_digest(self.plan.env),
                "plan": self.fingerprint,
                "add": None,
                "files": dict(self.files or {}),
            }
        )


def run_question(asked: RunRequest, warnings: Sequence[str] = ()) -> Question:
    """May this command run, or this sandbox be opened?"""
    text, truncated = display(asked.argv)
    hidden = any(has_hidden(word) for word in asked.argv)
    warned = (*warnings, *(("the command has invisible characters",) if hidden else ()))
    return Question(
        kind=asked.kind,
        session=asked.session.id,
        title=asked.session.title,
        client=asked.client,
        digest=asked.digest(),
        text=_sentence(asked, text),
        choices=_run_choices(asked, lasting=not truncated and not warned),
        execution_id=asked.execution_id,
        argv=asked.argv or None,
        display=text or None,
        cwd=asked.plan.cwd,
        truncated=truncated,
        effect=asked.effect,
        plan=asked.fingerprint,
        reach=reach_of(asked.plan),
        warnings=warned,
        subject=asked.subject(),
        secrets=secret_values(asked.plan.env),
    )


def _sentence(asked: RunRequest, command: str) -> str:
    what = f"run {command}" if asked.argv else "open a sandbox"
    return f"{what}, {_reach_words(asked)}?"


def _reach_words(asked: RunRequest) -> str:
    if asked.effect == "bare":
        return "without a sandbox"
    reach = reach_of(asked.plan)
    words = []
    if reach.write:
        words.append("writing " + ", ".join(map(escape_hidden, reach.write)))
    if reach.read:
        words.append("reading " + ", ".join(map(escape_hidden, reach.read)))
    if reach.network.kind == "inherit":
        words.append("with the whole network")
    elif reach.network.hosts:
        words.append("connecting to " + ", ".join(map(escape_hidden, reach.network.hosts)))
    return "; ".join(words) or "only reading"


def _run_choices(asked: RunRequest, *, lasting: bool) -> tuple[Choice, ...]:
    choices = [Choice(choice="once", allows=True, scope="once", label="allow this once")]
    if lasting:
        choices.append(
            Choice(
                choice="session", allows=True, scope="session",
                label="allow any command in a sandbox like this, for this session",
            )
        )  # fmt: skip
        if asked.plan.workspace is not None:
            choices.append(
                Choice(
                    choice="always", allows=True, scope="always",
                    label="always allow any command like this in "
                    + escape_hidden(asked.plan.workspace),
                )
            )  # fmt: skip
    return (*choices, *DENY)


DENY = (
    Choice(choice="deny", allows=False, scope="once", label="refuse"),
    Choice(
        choice="deny_session", allows=False, scope="session",
        label="refuse this command for the rest of the session",
    ),
)  # fmt: skip


def session_question(
    session: Session, client: Requester, text: str, change: Mapping[str, Any],
    kind: ApprovalKind = "session",
) -> Question:  # fmt: skip
    """May a session be opened or made wider, or have a larger budget?"""
    digest = digest_of({"session": session.id, "kind": kind, "change": dict(change)})
    return Question(
        kind=kind, session=session.id, title=session.title, client=client, digest=digest,
        text=text, choices=(
            Choice(choice="once", allows=True, scope="once", label="allow"),
            Choice(choice="deny", allows=False, scope="once", label="refuse"),
        ), add=dict(change) or None,
    )  # fmt: skip


def budget_question(session: Session, reason: str, observed: float, limit: float) -> Question:
    """May a session have more? Twice the limit, and at least what was asked for."""
    more = max(limit * 2, observed)
    raised = math.ceil(more) if reason in _WHOLE else round(more, 6)
    client = Requester(name="sandboxd", pid=None)
    text = f"raise {reason} of the session from {limit:g} to {raised:g}?"
    return session_question(session, client, text, {"budget": {reason: raised}}, "budget")


_WHOLE = ("max_processes", "max_agent_depth", "max_tokens_in", "max_tokens_out")


def widen_question(
    asked: RunRequest, add: Addition, because: Sequence[Any], *, folders: Addition | None,
    warnings: Sequence[str] = (),
) -> Question:  # fmt: skip
    """May the plan have what was denied? `folders`: the same, with the folder of each file."""
    text, truncated = display(asked.argv)
    digest = digest_of(
        {"session": asked.session.id, "kind": "widen", "run": asked.digest(), "add": add}
    )
    choices = [Choice(choice="once", allows=True, scope="once", label="allow once", add=add)]
    lasting = [("session", "for this session")]
    if asked.plan.workspace is not None:
        lasting.append(("always", f"always in {escape_hidden(asked.plan.workspace)}"))
    for scope, words in lasting:
        choices.append(
            Choice(choice=scope, allows=True, scope=scope, label=f"allow {words}", add=add)
        )
        if folders is not None:
            choices.append(
                Choice(
                    choice=f"{scope}_folder", allows=True, scope=scope,
                    label=f"allow the whole folder {words}", add=folders,
                )
            )  # fmt: skip
    return Question(
        kind="widen",
        session=asked.session.id,
        title=asked.session.title,
        client=asked.client,
        digest=digest,
        text=f"{_by_whose_word(because)}allow {_addition_words(add)} for {text}?",
        choices=(*choices, *DENY),
        execution_id=asked.execution_id,
        argv=asked.argv,
        display=text,
        cwd=asked.plan.cwd,
        truncated=truncated,
        effect=asked.effect,
        plan=asked.fingerprint,
        reach=reach_of(asked.plan),
        add=add,
        because=tuple(because),
        warnings=tuple(warnings),
        subject=digest_of({"kind": "widen", "run": asked.subject(), "add": add}),
        secrets=secret_values(asked.plan.env),
    )


def egress_question(
    session: Session, client: Requester, execution_id: str, host: str, port: int,
    workspace: str | None,
) -> Question:  # fmt: skip
    add: Addition = {"network": {"kind": "allow_hosts", "hosts": [f"{host}:{port}"]}}
    digest = digest_of({"session": session.id, "kind": "egress", "host": host, "port": port})
    choices = [
        Choice(choice="once", allows=True, scope="once", label="allow for this command", add=add),
        Choice(choice="session", allows=True, scope="session", label="allow for this session",
               add=add),
    ]  # fmt: skip
    if workspace is not None:
        choices.append(
            Choice(choice="always", allows=True, scope="always", add=add,
                   label=f"always allow in {escape_hidden(workspace)}")
        )  # fmt: skip
    return Question(
        kind="egress", session=session.id, title=session.title, client=client, digest=digest,
        text=f"connect to {escape_hidden(host)} at port {port}?", choices=(*choices, *DENY),
        execution_id=execution_id, add=add,
        subject=digest_of({"kind": "egress", "host": host, "port": port}),
    )  # fmt: skip


def _by_whose_word(because: Sequence[Any]) -> str:
    """The start of the sentence: a claim of the command's output is not called a refusal."""
    claimed = any(denial.get("claimed") and denial.get("remedy") for denial in because)
    return "the command says that it needs this: " if claimed else ""


def _addition_words(add: Addition) -> str:
    words = []
    for field, verb in (("fs_write_allow", "writing"), ("fs_read_allow", "reading")):
        if add.get(field):
            words.append(f"{verb} " + ", ".join(map(escape_hidden, add[field])))
    if add.get("network"):
        words.append("connecting to " + ", ".join(map(escape_hidden, add["network"]["hosts"])))
    words += [
        f"{name} = {value}" for name, value in add.items()
        if name not in ("fs_write_allow", "fs_read_allow", "network")
    ]  # fmt: skip
    return "; ".join(words)
