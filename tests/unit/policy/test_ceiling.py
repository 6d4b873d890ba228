"""Each line of the ceiling refuses a plan beyond it and accepts one at it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from sandboxd.config.config import Ceiling
from sandboxd.policy import ceiling
from sandboxd.policy.plan import Grant, Identity, Limits, NetworkRule, Plan, SandboxSpec
from sandboxd_proto.errors import CeilingExceeded


def plan(spec: SandboxSpec | None = None, **changes: Any) -> Plan:
    made = Plan(
        sandbox=spec or SandboxSpec(base="minimal", network=NetworkRule("deny")),
        syscall_policy="baseline", timeout_s=10.0, limits=Limits(), env=(), cwd="/",
    )  # fmt: skip
    return replace(made, **changes)


def network(kind: Any, *hosts: str) -> Plan:
    return plan(SandboxSpec(base="minimal", network=NetworkRule(kind, hosts)))


def private(**sizes: int) -> Plan:
    spec = SandboxSpec(base="minimal", network=NetworkRule("deny"), **sizes)  # type: ignore[arg-type]
    return plan(spec, asked=frozenset(sizes))


def grant(path: str, access: Any, origin: Any = "caller") -> Plan:
    spec = SandboxSpec(base="minimal", network=NetworkRule("deny"))
    identity = Identity.of(os.lstat("/"))
    return plan(replace(spec, grants=(Grant(path, access, identity, origin),)))


HOSTS = Ceiling(hosts=["*.example.org", "one.test:8000-8100"])
CASES = [
    (Ceiling(presets=["read-only"]), plan(preset="read-only"), plan(preset="workspace-write")),
    (Ceiling(network=["deny"]), network("deny"), network("inherit")),
    (Ceiling(network=["deny"]), network("deny"), network("allow_hosts", "a.example.org")),
    (HOSTS, network("allow_hosts", "a.example.org"), network("allow_hosts", "example.com")),
    (HOSTS, network("allow_hosts", "*.b.example.org"), network("allow_hosts", "*.org.test")),
    (HOSTS, network("allow_hosts", "one.test:8000"), network("allow_hosts", "one.test:8100-8101")),
    (Ceiling(max_timeout_secs=10), plan(), plan(timeout_s=10.5)),
    (Ceiling(max_timeout_secs=10), plan(), plan(timeout_s=None)),
    (Ceiling(max_memory_bytes=7), private(tmp_bytes=7), private(tmp_bytes=8)),
    (Ceiling(max_memory_bytes=7), private(shm_bytes=7), private(shm_bytes=8)),
    *(
        (Ceiling(**{key: 7}), plan(limits=Limits(**{name: 7})), plan(limits=Limits(**{name: 8})))  # type: ignore[arg-type]
        for key, name in {
            "max_memory_bytes": "memory_bytes", "max_cpu_secs": "cpu_s",
            "max_processes": "processes", "max_file_bytes": "file_bytes",
            "max_output_bytes": "output_bytes",
        }.items()
    ),
]  # fmt: skip


@pytest.mark.parametrize(("limit", "at", "beyond"), CASES)
def test_a_plan_beyond_the_ceiling_is_refused(limit: Ceiling, at: Plan, beyond: Plan) -> None:
    ceiling.check(at, limit)
    ceiling.check(beyond, Ceiling())
    with pytest.raises(CeilingExceeded) as refused:
        ceiling.check(beyond, limit)
    assert "[ceiling] " in (refused.value.remedy or "")


def test_a_ceiling_of_the_environment_is_named_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SANDBOXD_CEILING_MAX_MEMORY_BYTES", "7")
    with pytest.raises(CeilingExceeded) as refused:
        ceiling.check(plan(limits=Limits(memory_bytes=3 << 30)), Ceiling(max_memory_bytes=7))
    told = refused.value.remedy or ""
    assert told.startswith("SANDBOXD_CEILING_MAX_MEMORY_BYTES, which was set when the daemon")
    assert "sandboxctl restart" in told
    assert "config says" not in told


def test_bytes_beyond_the_ceiling_are_shown_with_their_unit() -> None:
    with pytest.raises(CeilingExceeded, match="max_memory_bytes = 3G is beyond"):
        ceiling.check(plan(limits=Limits(memory_bytes=3 << 30)), Ceiling(max_memory_bytes=7))


@pytest.mark.parametrize("access", ["read", "write"])
def test_a_path_outside_of_the_roots_is_refused(tmp_path: Path, access: str) -> None:
    root = tmp_path / "root"
    limit = Ceiling(roots=[str(root)])
    ceiling.check(grant(f"{root}/x", access), limit)
    for outside in (str(tmp_path), f"{root}-other", "/srv/x"):
        ceiling.check(grant(outside, access, "preset"), limit)
        with pytest.raises(CeilingExceeded, match="beyond"):
            ceiling.check(grant(outside, access), limit)


def test_system_folders_may_be_read_and_not_written_outside_of_the_roots(tmp_path: Path) -> None:
    limit = Ceiling(roots=[str(tmp_path)])
    ceiling.check(grant("/usr/share", "read"), limit)
    with pytest.raises(CeilingExceeded):
        ceiling.check(grant("/usr/share", "write"), limit)


def test_a_root_is_compared_where_its_link_leads(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    ceiling.check(grant(f"{tmp_path}/real/x", "write"), Ceiling(roots=[f"{tmp_path}/link"]))
