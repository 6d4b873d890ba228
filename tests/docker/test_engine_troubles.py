"""What goes wrong with engines, each provoked on a real one."""

from __future__ import annotations

import random
import signal
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack

import pytest
from support.backends import ATTACHED, environment, running_backend
from support.daemon import running_daemon
from support.engine import TestEngine, running_engine
from support.rpc import RpcError
from support.runs import Runner

from sandboxd.backends.docker.containers import LABEL
from sandboxd.backends.owner_identity import supervisor_identity

Eventually = Callable[[Callable[[], bool]], bool]
WAYS = pytest.mark.parametrize("backend", ["docker", ATTACHED])
AT_ONCE = 50


def ours(engine: TestEngine, label: str) -> list[str]:
    words = ["ps", "--all", "--quiet", "--filter", f"label={LABEL}={label}"]
    return engine.docker(*words).stdout.split()


@WAYS
def test_fifty_at_once_cancelled_at_random_leave_no_container(
    backend: str, engine: TestEngine, eventually: Eventually
) -> None:
    """A cancelled create call makes the container all the same."""
    chance = random.Random(7)
    with (
        running_backend(backend, config="[pool]\nenabled = false\n") as daemon,
        ExitStack() as stack,
    ):
        label = supervisor_identity(daemon.socket)
        connections = [stack.enter_context(daemon.connect(timeout_s=120)) for _ in range(AT_ONCE)]
        started = [
            connection.start("execute", {"argv": ["sleep", "60"], "execution_id": f"e{number}"})
            for number, connection in enumerate(connections)
        ]

        def cancel(number: int, after_s: float) -> None:
            time.sleep(after_s)
            connections[number].start("execution/cancel", {"execution_id": f"e{number}"})

        threads = [
            threading.Thread(target=cancel, args=(number, chance.uniform(0, 4)))
            for number in range(AT_ONCE)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for connection, request in zip(connections, started, strict=True):
            assert connection.result(request)["outcome"] == "cancelled"
        assert eventually(lambda: ours(engine, label) == [])


@WAYS
def test_attach_that_nobody_reads_does_not_stand_in_the_way(
    backend: str, engine: TestEngine, eventually: Eventually
) -> None:
    """A client that does not read, a command that does not stop printing, and a cancel."""
    config = "[pool]\nenabled = false\n"
    with running_backend(backend, config=config) as daemon, daemon.connect() as idle:
        label = supervisor_identity(daemon.socket)
        idle.start("execute", {"argv": ["yes"], "stream": True, "execution_id": "loud"})
        assert eventually(lambda: ours(engine, label) != [])
        time.sleep(1)  # long enough for every buffer on the way to be full
        idle.start("execution/cancel", {"execution_id": "loud"})
        assert eventually(lambda: ours(engine, label) == [])


@WAYS
def test_killed_daemon_leaves_nothing_once_another_has_started(
    backend: str, engine: TestEngine, eventually: Eventually
) -> None:
    foreign = engine.docker(
        "create", "--label", f"{LABEL}=somebody-else", "sandboxd/base:local", "true"
    ).stdout.strip()
    try:
        with running_backend(backend) as daemon:
            label = supervisor_identity(daemon.socket)
            with daemon.connect() as connection:
                connection.start("execute", {"argv": ["sleep", "60"]})
                assert eventually(lambda: ours(engine, label) != [])
                daemon.process.send_signal(signal.SIGKILL)
                daemon.process.wait()
            env = {**environment(backend), "SANDBOXD_SOCKET": daemon.socket}
            with running_daemon(env=env, args=["--socket", daemon.socket]):
                assert eventually(lambda: ours(engine, label) == [])
                assert foreign in engine.docker("ps", "-aq", "--no-trunc").stdout.split()
    finally:
        engine.docker("rm", "--force", foreign)


def test_killed_daemons_commands_end_with_it(engine: TestEngine, eventually: Eventually) -> None:
    """With our init inside nothing has to be reaped: its socket closes, and the engine removes it.

    One that was made and not yet started is left to the next daemon, hence no pool.
    """
    with running_backend("docker", config="[pool]\nenabled = false\n") as daemon:
        label = supervisor_identity(daemon.socket)
        with daemon.connect() as connection:
            connection.start("execute", {"argv": ["sleep", "60"], "stream": True})
            connection.wait_until(lambda: bool(connection.notifications))
            assert len(ours(engine, label)) == 1
            daemon.process.send_signal(signal.SIGKILL)
            daemon.process.wait()
        assert eventually(lambda: ours(engine, label) == [])


@pytest.mark.requires("root")
@WAYS
def test_engine_that_restarts_fails_what_ran_and_serves_what_comes(
    backend: str, engine: TestEngine
) -> None:
    with running_engine() as own:
        own.build_image("sandboxd/base:local", "--bare")
        with running_backend(backend, env={"DOCKER_HOST": own.url}) as daemon:
            runner = Runner(daemon)
            with daemon.connect(timeout_s=120) as connection:
                argv = ["sh", "-c", "echo running; sleep 60"]
                unlimited = {"argv": argv, "stream": True, "manifest": {"timeout": "none"}}
                request = connection.start("execute", unlimited)
                connection.notification("execution/output")
                own.stop()
                result = connection.result(request)
                assert result["outcome"] == "isolation_lost"
                assert result["denials"][0]["kind"] == "sandbox_error"
            with pytest.raises(RpcError) as refused:
                runner.run("true")
            assert refused.value.kind == "SandboxUnavailable"
            own.start()
            assert runner.run("echo", "again").stdout == "again\n"
            runner.close()


def test_engine_that_does_not_answer_is_a_refusal_never_a_fallback() -> None:
    env = {"SANDBOXD_BACKEND": "docker", "DOCKER_HOST": "unix:///nonexistent/engine.sock"}
    with running_daemon(env=env) as daemon:
        runner = Runner(daemon)
        with pytest.raises(RpcError) as refused:
            runner.run("true")
        assert refused.value.kind == "SandboxUnavailable"
        assert "/nonexistent/engine.sock does not answer" in refused.value.message
        assert "systemctl start docker" in str(refused.value.remedy)
        runner.close()


def test_wayland_variable_names_it_too(engine: TestEngine) -> None:
    env = {"WAYLAND_SANDBOX": "docker", "DOCKER_HOST": engine.url}
    with running_daemon(env=env) as daemon:
        runner = Runner(daemon)
        assert runner.run("true").raw["backend"] == "docker"
        runner.close()


def test_request_names_it_only_where_the_config_permits(engine: TestEngine) -> None:
    env = {"DOCKER_HOST": engine.url, "SANDBOXD_BACKEND": "bubblewrap"}
    with running_daemon(env=env) as daemon:
        runner = Runner(daemon)
        with pytest.raises(RpcError) as refused:
            runner.run("true", backend="docker")
        assert refused.value.kind == "CeilingExceeded"
        runner.close()
    permitted = '[ceiling]\nbackends = ["bubblewrap", "docker"]\n'
    with running_daemon(env={"DOCKER_HOST": engine.url}, config=permitted) as daemon:
        runner = Runner(daemon)
        assert runner.run("true", backend="docker").raw["backend"] == "docker"
        runner.close()
