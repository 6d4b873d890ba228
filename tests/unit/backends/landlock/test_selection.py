"""Which backend runs a command on a kernel that lacks something, and whether the daemon says so.

The lack is made by a system call filter around the daemon: to it, and to bwrap, the kernel is one
without Landlock or without user namespaces.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.daemon import Daemon, running_daemon
from support.rpc import RpcError
from support.runs import Runner

pytestmark = pytest.mark.requires("bubblewrap", "landlock", "seccomp")
WITHOUT = str(Path(__file__).parents[3] / "support" / "without_syscalls.py")


@contextmanager
def daemon_without(names: str, **options: Any) -> Iterator[Runner]:
    prefix = [sys.executable, WITHOUT, names]
    with running_daemon(prefix=prefix, **options) as daemon:
        runner = Runner(daemon)
        try:
            yield runner
        finally:
            runner.close()


def backends(runner: Runner) -> tuple[dict[str, Any], dict[str, Any]]:
    status = runner.connection.call("status")
    return status, {backend["name"]: backend for backend in status["backends"]}


@pytest.mark.isolation
def test_without_user_namespaces_landlock_is_chosen(workspace: Path):
    with daemon_without("userns") as runner:
        status, found = backends(runner)
        assert status["backend"] == "landlock"
        assert not status["bwrap_available"]
        assert not found["bubblewrap"]["available"]
        assert "namespace" in found["bubblewrap"]["reason"]
        assert found["bubblewrap"]["remedy"]
        assert found["landlock"]["available"]
        ran = runner.shell("echo x > made; echo y > /etc/made", manifest={
            "fs_write_allow": [str(workspace)]}, cwd=str(workspace))  # fmt: skip
        assert ran.raw["backend"] == "landlock"
        assert ran.enforcement == {"fs_write_allow": "best_effort"}
        assert (workspace / "made").exists()
        assert not Path("/etc/made").exists()
        assert runner.check(manifest={})["backend"] == "landlock"


def test_without_landlock_bubblewrap_says_what_is_missing():
    with daemon_without("landlock") as runner:
        status, found = backends(runner)
        assert (status["backend"], status["landlock_abi"]) == ("bubblewrap", 0)
        assert not found["landlock"]["available"]
        assert "Landlock" in found["landlock"]["reason"]
        assert any("Landlock" in warning for warning in status["warnings"])
        assert not any("Landlock" in layer for layer in found["bubblewrap"]["layers"])
        ran = runner.run("true", manifest={"network": "deny"})
        assert ran.raw["backend"] == "bubblewrap"
        assert ran.exited(0)


def test_without_either_every_command_is_refused_with_both_reasons():
    with daemon_without("landlock,userns") as runner:
        status, _ = backends(runner)
        assert status["backend"] is None
        with pytest.raises(RpcError) as refused:
            runner.run("true")
        assert refused.value.kind == "SandboxUnavailable"
        assert "namespace" in str(refused.value)
        assert "Landlock" in str(refused.value)


def test_a_backend_that_was_named_is_not_replaced():
    with daemon_without("userns", env={"SANDBOXD_BACKEND": "bubblewrap"}) as runner:
        with pytest.raises(RpcError) as refused:
            runner.run("true")
        assert refused.value.kind == "SandboxUnavailable"
    with daemon_without("landlock", env={"SANDBOXD_BACKEND": "landlock"}) as runner:
        with pytest.raises(RpcError) as refused:
            runner.run("true")
        assert refused.value.kind == "SandboxUnavailable"


@pytest.mark.isolation
def test_what_landlock_cannot_enforce_is_refused_and_not_weakened():
    manifest = {"network": {"kind": "allow_hosts", "hosts": ["example.org"]}}
    with daemon_without("userns") as runner:
        with pytest.raises(RpcError) as refused:
            runner.run("true", manifest=manifest)
        assert refused.value.kind in ("SandboxUnavailable", "PolicyNotSupported")


def test_the_ceiling_may_forbid_landlock():
    with daemon_without("userns", config='[ceiling]\nbackends = ["bubblewrap"]\n') as runner:
        with pytest.raises(RpcError) as refused:
            runner.run("true")
        assert refused.value.kind == "SandboxUnavailable"


@pytest.mark.isolation
def test_control_with_everything_bubblewrap_is_chosen(start_daemon: Callable[..., Daemon]):
    daemon = start_daemon()
    runner = Runner(daemon)
    try:
        assert runner.run("true").raw["backend"] == "bubblewrap"
    finally:
        runner.close()
