"""The effect of a plan decides whether it is asked about; its fingerprint, what a grant covers."""

from __future__ import annotations

import os
from typing import Any

import pytest
from msgspec.structs import replace

from sandboxd.policy.plan import (
    Grant,
    Identity,
    Limits,
    Mask,
    NetworkRule,
    Plan,
    Protected,
    RunAs,
    SandboxSpec,
)
from sandboxd.supervisor.sessions.effects import Given, effect_of, fingerprint

SPEC = SandboxSpec(base="minimal", network=NetworkRule("deny"))
PLAN = Plan(
    sandbox=SPEC, syscall_policy="baseline", timeout_s=1.0, limits=Limits(), env=(), cwd="/w",
    workspace="/w",
)  # fmt: skip


def with_spec(**changes: Any) -> Plan:
    return replace(PLAN, sandbox=replace(SPEC, **changes))


def granting(path: str, access: Any, origin: Any = "caller") -> Plan:
    return with_spec(grants=(Grant(path, access, Identity.of(os.lstat("/")), origin),))


@pytest.mark.parametrize(
    ("plan", "effect"),
    [(PLAN, "read"), (granting("/w", "read"), "read"), (granting("/usr/share", "read"), "read"),
     (granting("/w", "write"), "edit"), (granting("/w/out", "write"), "edit"),
     (granting("/home/x", "read"), "reach"), (granting("/w-other", "write"), "reach"),
     (granting("/usr/share", "write"), "reach"), (granting("/home/x", "write", "cache"), "read"),
     (with_spec(network=NetworkRule("inherit")), "reach"),
     (with_spec(network=NetworkRule("allow_hosts", ("example.org",))), "reach"),
     (with_spec(image="debian"), "reach"), (replace(PLAN, backend="none"), "bare")],
)  # fmt: skip
def test_the_effect_is_what_the_plan_allows(plan: Plan, effect: str) -> None:
    assert effect_of(plan, bare=False) == effect
    assert effect_of(plan, bare=True) == "bare"


GIVEN = Given(
    write=frozenset({"/home/w"}), read=frozenset({"/home/r"}), has_host="example.org".__eq__
)


@pytest.mark.parametrize(
    ("plan", "effect"),
    [(granting("/home/w", "write"), "edit"), (granting("/home/w", "read"), "read"),
     (granting("/home/r", "read"), "read"), (granting("/home/r", "write"), "reach"),
     (granting("/home/w/.env", "read"), "reach"), (granting("/home", "read"), "reach"),
     (with_spec(network=NetworkRule("allow_hosts", ("example.org",))), "read"),
     (with_spec(network=NetworkRule("allow_hosts", ("example.org", "example.com"))), "reach"),
     (with_spec(network=NetworkRule("inherit")), "reach"),
     (replace(PLAN, backend="none"), "bare")],
)  # fmt: skip
def test_naming_exactly_what_grants_give_does_not_count(plan: Plan, effect: str) -> None:
    assert effect_of(plan, bare=False, given=GIVEN) == effect


@pytest.mark.parametrize(
    "plan",
    [with_spec(base="host"), granting("/w", "read"), granting("/w", "write"),
     with_spec(masks=(Mask("/w/.env", False),)),
     with_spec(protected=(Protected("/w/.git/hooks", "/w", True),)),
     with_spec(network=NetworkRule("inherit")),
     with_spec(network=NetworkRule("allow_hosts", ("example.org",))),
     replace(PLAN, syscall_policy="strict"), with_spec(run_as=RunAs(7, 7)),
     with_spec(image="debian")],
)  # fmt: skip
def test_a_sandbox_of_another_shape_has_another_fingerprint(plan: Plan) -> None:
    assert fingerprint(plan, "auto") != fingerprint(PLAN, "auto")
    assert fingerprint(plan, "auto") != fingerprint(plan, "docker")


def test_limits_and_the_command_are_no_part_of_the_shape() -> None:
    other = replace(PLAN, limits=Limits(processes=3), timeout_s=9.0, env=(("A", "1"),), cwd="/")
    assert fingerprint(other, "auto") == fingerprint(PLAN, "auto")
