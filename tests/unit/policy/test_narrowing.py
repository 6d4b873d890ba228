"""A command in a sandbox that exists has at most the sandbox's own limits."""

from __future__ import annotations

from typing import Any

import pytest

from sandboxd.policy.narrowing import narrow
from sandboxd.policy.plan import Limits, NetworkRule, Plan, SandboxSpec
from sandboxd_proto.errors import InvalidParams
from sandboxd_proto.manifest import Manifest

PLAN = Plan(
    sandbox=SandboxSpec(base="host", network=NetworkRule("deny")), syscall_policy="baseline",
    timeout_s=30.0, limits=Limits(memory_bytes=200 << 20, cpu_s=2, processes=5), cwd="/w", env=(),
)  # fmt: skip


@pytest.mark.parametrize(
    ("field", "more", "less"),
    [
        ("max_memory_bytes", 400 << 20, 200 << 20),
        ("max_cpu_secs", 2.5, 1.0),
        ("max_processes", 6, 5),
    ],
)
def test_a_limit_above_the_sandbox_s_own_is_refused(field: str, more: Any, less: Any) -> None:
    with pytest.raises(InvalidParams) as refused:
        narrow(PLAN, Manifest(**{field: more}))
    assert refused.value.field == field
    assert "the sandbox itself has" in refused.value.message
    assert "sandbox/create" in str(refused.value.remedy)
    narrow(PLAN, Manifest(**{field: less}))


def test_a_limit_that_the_sandbox_has_not_is_the_command_s_own() -> None:
    assert narrow(PLAN, Manifest(max_file_bytes=7)).limits.file_bytes == 7
