"""A bwrap that hangs: one request finds out, the others are told at once, and it is tried again."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.daemon import Daemon
from support.rpc import RpcError

from sandboxd.backends.bubblewrap.breaker import REST_S, USUAL_MOUNTS, Breaker
from sandboxd_proto.errors import SandboxUnavailable

StartDaemon = Callable[..., Daemon]


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def refused(breaker: Breaker) -> bool:
    try:
        with breaker.attempt():
            return False
    except SandboxUnavailable:
        return True


def test_it_trips_for_a_while_and_then_one_tries() -> None:
    clock = Clock()
    breaker = Breaker(clock)
    assert not refused(breaker)
    breaker.hung("bwrap hung")
    assert refused(breaker)
    clock.now += REST_S - 0.1
    assert refused(breaker)
    clock.now += 0.2
    with breaker.attempt():
        assert refused(breaker)  # one at a time
    assert not refused(breaker)  # that one said nothing: the next one tries
    breaker.worked()
    assert not breaker.tripped


def test_who_asks_whether_it_works_always_tries() -> None:
    breaker = Breaker(Clock())
    breaker.hung("bwrap hung")
    with breaker.attempt(asked=True):
        assert refused(breaker)
    breaker.worked()
    assert not refused(breaker)


def test_a_request_that_is_slow_by_itself_does_not_trip_it() -> None:
    """One client with a thousand paths does not get the others' requests refused."""
    breaker = Breaker(Clock())
    breaker.hung("bwrap hung", mounts=USUAL_MOUNTS + 1)
    assert not refused(breaker)
    breaker.hung("bwrap hung", mounts=USUAL_MOUNTS)
    assert refused(breaker)


def test_a_rest_is_five_seconds_at_most() -> None:
    assert REST_S <= 5.0


def fake_bwrap(folder: Path, *, hangs_at: str) -> Path:
    """A bwrap that hangs while a file named `hang` lies beside it, and else is the real one."""
    folder.mkdir()
    folder.chmod(0o755)
    program = folder / "bwrap"
    program.write_text(
        "#!/bin/sh\n"
        f'case "$1" in {hangs_at}) while [ -e {folder}/hang ]; do sleep 0.2; done;; esac\n'
        'exec /usr/bin/bwrap "$@"\n'
    )
    program.chmod(0o755)
    (folder / "hang").touch()
    return program


@pytest.mark.requires("bubblewrap")
@pytest.mark.parametrize("hangs_at", ["--help", "--args"])
def test_a_hanging_bwrap_stops_nobody_else_and_comes_back(
    start_daemon: StartDaemon, tmp_path: Path, hangs_at: str
) -> None:
    """Another client is served while it hangs: the daemon waits for nothing on its event loop."""
    folder = tmp_path / "bin"
    fake_bwrap(folder, hangs_at=hangs_at)
    daemon = start_daemon(env={"PATH": f"{folder}:/usr/bin:/bin"})
    request = {"argv": ["true"], "backend": "bubblewrap"}
    with daemon.connect(timeout_s=60) as client, daemon.connect() as other:
        first = client.start("execute", request)
        for _ in range(3):  # answered while the first one waits
            assert other.call("execution/list") is not None
        assert not client.has_answered(first)
        assert client.answer(first)["error"]["data"]["kind"] == "SandboxUnavailable"
        # It hangs still, and this answer comes without a new trial: none of it is running.
        with pytest.raises(RpcError, match="a moment ago"):
            other.call("execute", request)
        assert not [p for p in daemon.descendants() if "bwrap" in str(p)]
        os.unlink(folder / "hang")
        assert other.call("status")["bwrap_available"]  # asks at once
        assert other.call("execute", request)["exit_code"] == 0


@pytest.mark.requires("bubblewrap")
def test_without_status_the_first_request_after_the_rest_tries(
    start_daemon: StartDaemon, tmp_path: Path
) -> None:
    folder = tmp_path / "bin"
    fake_bwrap(folder, hangs_at="--help")
    daemon = start_daemon(env={"PATH": f"{folder}:/usr/bin:/bin"})
    request = {"argv": ["true"], "backend": "bubblewrap"}
    with daemon.connect(timeout_s=60) as client:
        with pytest.raises(RpcError, match="hangs"):
            client.call("execute", request)
        os.unlink(folder / "hang")
        time.sleep(REST_S)
        assert client.call("execute", request)["exit_code"] == 0


@pytest.mark.requires("bubblewrap", "landlock")
def test_meanwhile_landlock_takes_over_where_no_backend_is_named(
    start_daemon: StartDaemon, tmp_path: Path
) -> None:
    folder = tmp_path / "bin"
    fake_bwrap(folder, hangs_at="--help")
    daemon = start_daemon(env={"PATH": f"{folder}:/usr/bin:/bin"})
    with daemon.connect(timeout_s=60) as client:
        for _ in range(2):
            assert client.call("execute", {"argv": ["true"]})["backend"] == "landlock"
