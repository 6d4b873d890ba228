"""Everything that an approver is shown is in the digest: another value is another question."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from sandboxd.policy.plan import Limits, NetworkRule, Plan, SandboxSpec
from sandboxd.supervisor.approvals.questions import RunRequest
from sandboxd_proto.messages.approval import Requester

PLAN = Plan(
    sandbox=SandboxSpec(base="minimal", network=NetworkRule("deny")), syscall_policy="baseline",
    timeout_s=1.0, limits=Limits(), env=(("A", "1"), ("B", "2")), cwd="/w",
)  # fmt: skip
REQUEST = RunRequest(
    session=cast(Any, SimpleNamespace(id="se-1")), client=Requester(name="me", pid=1), plan=PLAN,
    effect="read", family="auto", argv=("make", "test"), stdin=b"input", files={"/w/x": "1:abc"},
)  # fmt: skip
CHANGES: list[dict[str, Any]] = [
    {"argv": ("make", "test", "")},
    {"argv": ("make test",)},
    {"stdin": b"input\n"},
    {"stdin_open": True},
    {"files": {"/w/x": "1:abd"}},
    {"files": {}},
    {"family": "docker"},
    {"plan": replace(PLAN, cwd="/")},
    {"plan": replace(PLAN, env=(("A", "1"), ("B", "3")))},
    {"plan": replace(PLAN, env=(("A", "1"),))},
    {"plan": replace(PLAN, env=(("A", "1B"), ("", "2")))},
    {"plan": replace(PLAN, sandbox=replace(PLAN.sandbox, network=NetworkRule("inherit")))},
]


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_another_value_is_another_digest(change: dict[str, Any]) -> None:
    assert replace(REQUEST).digest() == REQUEST.digest()
    changed = replace(REQUEST, **change)
    assert changed.digest() != REQUEST.digest()
    assert changed.subject() != REQUEST.subject()


def test_another_session_is_another_digest_of_the_same_subject() -> None:
    other = replace(REQUEST, session=cast(Any, SimpleNamespace(id="se-2")))
    assert other.digest() != REQUEST.digest()
    assert other.subject() == REQUEST.subject()
