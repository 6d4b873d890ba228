"""Which sandboxes are cloned, and when that is given up."""

from __future__ import annotations

import sys

import pytest

if sys.platform != "linux":
    pytest.skip("bubblewrap is Linux's", allow_module_level=True)

from sandboxd.backends.bubblewrap.clones import (
    FAILURE_S,
    MOST_FAILURES,
    MOST_MOVED,
    CloneFailures,
    can_clone,
)
from sandboxd.policy.mounts.mount_plan import Host, mount_plan
from sandboxd.policy.plan import Grant, Identity, NetworkRule, SandboxSpec

HOST = Host(system=(("/usr", None),), homes=())


def spec(grants: int = 0, network: str = "deny") -> SandboxSpec:
    """With that many grants in the private /tmp."""
    paths = [f"/tmp/folder/{number}" for number in range(grants)]
    made = tuple(Grant(path, "read", Identity(1, n, is_dir=False)) for n, path in enumerate(paths))
    return SandboxSpec(base="minimal", network=NetworkRule(network), grants=made)  # type: ignore[arg-type]


def cloned(one: SandboxSpec) -> bool:
    return can_clone(one, mount_plan(one, HOST))


def test_more_mounts_than_a_template_moves_are_not_cloned() -> None:
    assert cloned(spec(MOST_MOVED))
    assert not cloned(spec(MOST_MOVED + 1))


def test_what_a_gate_serves_is_not_cloned() -> None:
    assert cloned(spec())
    assert not cloned(spec(network="allow_hosts"))


def test_a_spec_that_fails_does_not_end_clones_of_others() -> None:
    now = [0.0]
    failures = CloneFailures(lambda: now[0])
    failures.worked(spec())
    for _ in range(MOST_FAILURES):
        assert failures.may_try(spec(1))
        failures.failed(spec(1), "why")
    assert not failures.may_try(spec(1))
    assert failures.may_try(spec())
    now[0] = FAILURE_S + 1
    assert failures.may_try(spec(1))


def test_where_none_ever_worked_none_is_tried() -> None:
    failures = CloneFailures()
    for number in range(MOST_FAILURES):
        failures.failed(spec(number), "why")
    assert not failures.may_try(spec(99))


def test_one_that_works_again_starts_afresh() -> None:
    failures = CloneFailures()
    for _ in range(MOST_FAILURES - 1):
        failures.failed(spec(), "why")
    failures.worked(spec())
    failures.failed(spec(), "why")
    assert failures.may_try(spec())
