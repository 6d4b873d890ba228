"""Warm sandboxes, renewal of those in use, and the end of all of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from support.fake_opensandbox import KEY, FakeServer
from support.rpc import RpcError
from support.runs import Runner

from sandboxd.backends.opensandbox import sandboxes
from sandboxd.backends.opensandbox.http_client import HttpClient
from sandboxd.backends.opensandbox.lifecycle import Lifecycle
from sandboxd_proto.secret import Secret

INHERIT = {"network": "inherit"}


def test_warm_sandboxes_are_ready_serve_once_and_are_deleted(
    own_fake: FakeServer, daemon_on: Callable[..., Any]
) -> None:
    with daemon_on(own_fake.url, warm="true") as daemon:
        runner = Runner(daemon)
        assert runner.run("true", manifest=INHERIT).exited(0)
        _until(lambda: bool(own_fake.sandboxes))
        (warm,) = list(own_fake.sandboxes)[:1]
        used = len(own_fake.created)
        ran = runner.shell("echo warm", manifest=INHERIT)
        assert ran.stdout == "warm\n"
        assert warm in own_fake.deleted, "the warm one served the command, and only that"
        assert len(own_fake.created) >= used
        runner.close()
    assert not own_fake.sandboxes


def test_a_warm_sandbox_that_expired_is_not_used(
    own_fake: FakeServer, daemon_on: Callable[..., Any]
) -> None:
    """Its server deleted it: the command gets an error or another one, and the next one works."""
    with daemon_on(own_fake.url, warm="true") as daemon:
        runner = Runner(daemon)
        assert runner.run("true", manifest=INHERIT).exited(0)
        _until(lambda: bool(own_fake.sandboxes))
        for identity in list(own_fake.sandboxes):
            own_fake.delete(identity)
        assert _end_of(runner) in ("exited", "SandboxUnavailable")
        assert runner.run("true", manifest=INHERIT).exited(0)
        runner.close()


def test_a_warm_sandbox_gets_the_folder_as_it_is_now(
    own_fake: FakeServer, daemon_on: Callable[..., Any], tmp_path: Path
) -> None:
    own_fake.files = True
    work = tmp_path / "work"
    work.mkdir()
    manifest = {**INHERIT, "fs_write_allow": [str(work)]}
    with daemon_on(own_fake.url, warm="true") as daemon:
        runner = Runner(daemon)
        assert runner.run("true", manifest=manifest).exited(0)
        _until(lambda: bool(own_fake.sandboxes))
        (work / "later").write_text("later\n")
        ran = runner.shell("cat later && echo more >>later", manifest=manifest, cwd=str(work))
        assert ran.stdout == "later\n", ran.story
        assert (work / "later").read_text() == "later\nmore\n"
        runner.close()


def test_a_sandbox_in_use_is_renewed_and_one_that_is_gone_is_not_used(
    own_fake: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandboxes, "RENEW_S", 0.05)

    async def use() -> tuple[int, bool]:
        http = HttpClient(own_fake.url)
        async with anyio.create_task_group() as tasks:
            all_of_them = sandboxes.RemoteSandboxes(Lifecycle(http, Secret(KEY)), "me", tasks)
            async with all_of_them.created(lambda metadata: {"metadata": metadata}, 5) as made:
                (there,) = own_fake.sandboxes.values()
                await _met(lambda: there.renewed >= 3)
                own_fake.delete(made.id)
                await _met(lambda: not made.alive)
            tasks.cancel_scope.cancel()
        await http.close()
        return there.renewed, made.alive

    renewed, alive = anyio.run(use)
    assert renewed >= 3
    assert not alive


def test_renewals_that_fail_do_not_end_a_sandbox(
    own_fake: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that restarts: the sandbox lives on, and is renewed when the server answers."""
    monkeypatch.setattr(sandboxes, "RENEW_S", 0.05)
    own_fake.faults["renew"] = 503

    async def use() -> None:
        http = HttpClient(own_fake.url)
        async with anyio.create_task_group() as tasks:
            all_of_them = sandboxes.RemoteSandboxes(Lifecycle(http, Secret(KEY)), "me", tasks)
            async with all_of_them.created(lambda metadata: {"metadata": metadata}, 5) as made:
                (there,) = own_fake.sandboxes.values()
                await _met(lambda: there.renewed >= 3)
                assert made.alive
            tasks.cancel_scope.cancel()
        await http.close()

    anyio.run(use)
    assert not own_fake.sandboxes


def test_folders_that_are_others_on_the_server_are_refused(
    own_fake: FakeServer, daemon_on: Callable[..., Any], tmp_path: Path
) -> None:
    """With volumes: the name leads to another folder when the server mounts it."""
    work = tmp_path / "work"
    work.mkdir()
    add = own_fake.add

    def swap(body: dict[str, Any]) -> Any:
        work.rename(tmp_path / "moved")
        work.mkdir()
        return add(body)

    manifest = {**INHERIT, "fs_read_allow": [str(work)]}
    with daemon_on(own_fake.url, host_volumes="true") as daemon:
        runner = Runner(daemon)
        assert runner.run("true", manifest=manifest).exited(0), "the control"
        own_fake.add = swap  # type: ignore[method-assign]
        with pytest.raises(RpcError, match="another folder on the server"):
            runner.run("true", manifest=manifest)
        runner.close()
    assert not own_fake.sandboxes


def _end_of(runner: Runner) -> str | None:
    try:
        ran = runner.run("false", manifest=INHERIT)
    except RpcError as error:
        return error.kind
    return ran.outcome if ran.exit_code == 1 else f"a wrong result: {ran.story}"


def _until(met: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not met():
        assert time.monotonic() < deadline
        time.sleep(0.02)


async def _met(condition: Callable[[], bool]) -> None:
    await anyio.to_thread.run_sync(_until, condition)
