"""A command runs with a plan that is newer than its approval: what came into being while it waited
is masked or protected."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.daemon import Daemon, running_daemon
from support.rpc import Connection
from support.sessions import connect_approver, decide, open_session, pending

pytestmark = pytest.mark.requires("bubblewrap", "git")


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    with running_daemon() as daemon:
        yield daemon


@pytest.fixture
def worker(daemon: Daemon) -> Iterator[Connection]:
    with daemon.connect() as connection:
        open_session(connection, mode="default")
        yield connection


@pytest.fixture
def approver(daemon: Daemon) -> Iterator[Connection]:
    with connect_approver(daemon) as connection:
        yield connection


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_a_repository_is_protected(
    worker: Connection, approver: Connection, tmp_path: Path, when: str
) -> None:
    sub = tmp_path / "sub"
    sub.mkdir()
    make = ["git", "init", "-q", str(sub)]
    attack = "echo evil >sub/.git/hooks/pre-commit; echo '[core] fsmonitor=/x' >>sub/.git/config"
    if when == "before":
        subprocess.run(make, check=True)
    request = {"preset": "workspace-write", "workspace": str(tmp_path)}
    number = worker.start("execute", {**request, "argv": ["sh", "-c", attack]})
    (waits,) = pending(approver)
    if when == "meanwhile":
        subprocess.run(make, check=True)
    config = (sub / ".git" / "config").read_bytes()
    decide(approver, waits, "once")
    assert "Read-only file system" in str(worker.result(number)["stderr"])
    assert (sub / ".git" / "config").read_bytes() == config
    assert not (sub / ".git" / "hooks" / "pre-commit").exists()


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_a_secret_is_masked(
    daemon: Daemon, worker: Connection, approver: Connection, tmp_path: Path, when: str
) -> None:
    secret = daemon.home / ".netrc"
    if when == "before":
        secret.write_text("CANARY")
    manifest = {"fs_read_allow": [str(daemon.home)], "network": "deny"}
    number = worker.start("execute", {"argv": ["sh", "-c", f"cat {secret}"], "manifest": manifest})
    (waits,) = pending(approver)
    secret.write_text("CANARY")
    decide(approver, waits, "once")
    assert "CANARY" not in str(worker.result(number))
