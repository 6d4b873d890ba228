"""What is said about enforcement: every field that was asked for, and the same everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.backends import ALL, product_name
from support.rpc import RpcError
from support.runs import Ran
from support.subject import NotHeld, Subject

TIERS = {"enforced", "best_effort", "none"}
WISHES: dict[str, Any] = {
    "base": "minimal",
    "network": "deny",
    "syscall_policy": "baseline",
    "timeout": 30,
    "max_memory_bytes": 1 << 30,
    "max_cpu_secs": 30,
    "max_processes": 500,
    "max_file_bytes": 1 << 30,
    "max_output_bytes": 1 << 20,
    "env": {"A": "b"},
}


def wishes(workspace: Path) -> dict[str, Any]:
    (workspace / "denied").mkdir()
    (workspace.parent / "read").mkdir()
    lists = {"fs_read_allow": [str(workspace.parent / "read")], "fs_write_allow": [str(workspace)],
             "fs_deny": [str(workspace / "denied")]}  # fmt: skip
    return {**WISHES, **lists}


def run_as_far_as(subject: Subject, asked: dict[str, Any]) -> Ran:
    """Without the network, where that is refused; `asked` is then without it."""
    try:
        return subject.run("true", manifest=asked)
    except NotHeld:
        del asked["network"]
        return subject.run("true", manifest=asked)


@pytest.mark.asks("network")
def test_every_field_that_was_asked_for_is_reported(subject: Subject, workspace: Path) -> None:
    asked = wishes(workspace)
    ran = run_as_far_as(subject, asked)
    assert set(ran.enforcement) == set(asked)
    assert set(ran.enforcement.values()) <= TIERS


@pytest.mark.asks("network")
def test_nothing_else_is(subject: Subject) -> None:
    assert subject.run("true", manifest={}).enforcement == {}
    assert set(subject.run("true", manifest={"network": "deny"}).enforcement) == {"network"}


@pytest.mark.asks("network")
def test_checking_says_what_executing_does(subject: Subject, workspace: Path) -> None:
    asked = wishes(workspace)
    ran = run_as_far_as(subject, asked)
    checked = subject.check(manifest=asked)
    assert checked["backend"] == ran.raw["backend"] == subject.product_name
    assert checked["enforcement"] == ran.enforcement
    assert str(workspace) in checked["plan"]["fs_write_allow"]
    assert checked["plan"]["timeout_secs"] == 30


UNUSUAL: list[dict[str, Any]] = [
    {"network": {"kind": "allow_hosts", "hosts": ["example.org"]}},
    {"image": "sandboxd/base:local"},
    {"max_cpus": 2},
]


@pytest.mark.parametrize("manifest", UNUSUAL, ids=lambda m: next(iter(m)))
def test_what_cannot_be_held_is_refused_or_said(subject: Subject, manifest: dict[str, Any]) -> None:
    """And `manifest/check` gives the same answer as `execute`."""
    field = next(iter(manifest))
    try:
        ran = subject.run("true", manifest=manifest)
    except RpcError as refusal:
        assert refusal.kind in ("PolicyNotSupported", "SandboxUnavailable")
        with pytest.raises(RpcError) as checked:
            subject.check(manifest=manifest)
        assert (checked.value.kind, checked.value.field) == (refusal.kind, refusal.field)
    else:
        assert ran.enforcement[field] in TIERS
        assert subject.check(manifest=manifest)["enforcement"] == ran.enforcement


def test_an_unknown_field_is_an_error(subject: Subject) -> None:
    """A misspelt restriction must not be ignored."""
    with pytest.raises(RpcError) as refusal:
        subject.run("true", manifest={"fs_write_alow": ["/tmp"]})
    assert refusal.value.code == -32602
    assert "fs_write_alow" in refusal.value.message


def test_status_knows_every_backend_and_says_why_one_does_not_work(subject: Subject) -> None:
    status = subject.connection.call("status")
    backends = {backend["name"]: backend for backend in status["backends"]}
    assert set(backends) == {product_name(name) for name in ALL}
    assert status["backend"] == subject.product_name
    for backend in backends.values():
        assert backend["available"] or (backend["reason"] and backend["remedy"])
