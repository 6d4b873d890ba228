"""Clients that flood, vanish, half-close or ask for the impossible: other clients are served."""

from __future__ import annotations

import os
import socket
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from support.daemon import Daemon, running_daemon, stdout_of
from support.rpc import Connection, RpcError

from sandboxd.rpc.connection import MAX_FOLLOWS, MAX_FOLLOWS_IN_ALL
from sandboxd.rpc.notifications.subscriptions import MAX_SUBSCRIPTIONS, MAX_SUBSCRIPTIONS_IN_ALL

pytestmark = pytest.mark.requires("bubblewrap")


def test_a_client_that_never_stops_sending_does_not_stop_the_others(daemon: Daemon) -> None:
    stop = threading.Event()

    def flood() -> None:
        with daemon.connect() as noisy:
            line = b'{"jsonrpc":"2.0","method":"$/x"}\n' * 200
            while not stop.is_set():
                noisy.send_raw(line)

    thread = threading.Thread(target=flood)
    thread.start()
    try:
        with daemon.connect() as other:
            for _ in range(3):
                assert stdout_of(other.call("execute", {"argv": ["echo", "hi"]})) == "hi\n"
    finally:
        stop.set()
        thread.join()


def test_requests_beyond_the_limit_are_busy_and_cancelling_still_works(daemon: Daemon) -> None:
    with daemon.connect() as connection:
        running = connection.start(
            "execute", {"argv": ["sleep", "60"], "execution_id": "long", "stream": True}
        )
        connection.notification("execution/started", execution_id="long")
        waits = [connection.start("execution/wait", {"execution_id": "long"}) for _ in range(600)]
        late = connection.answer(waits[-1])
        assert late["error"]["data"]["kind"] == "Busy"
        connection.call("execution/cancel", {"execution_id": "long"})
        assert connection.result(running)["outcome"] == "cancelled"
        assert connection.result(waits[0])["outcome"] == "cancelled"


@pytest.mark.parametrize("method", ["initialize", "execution/list", "execute"])
def test_a_half_closed_client_gets_its_answer(shared_daemon: Daemon, method: str) -> None:
    params = {"argv": ["echo", "hi"]} if method == "execute" else {}
    for _ in range(5):
        with shared_daemon.connect() as connection:
            number = connection.start(method, params)
            connection.socket.shutdown(socket.SHUT_WR)
            assert "result" in connection.answer(number)


def test_a_refused_execute_closes_the_descriptors_that_came_with_it(daemon: Daemon) -> None:
    """With ours gone too, the pipe is at its end: the daemon kept no copy."""
    with daemon.connect() as connection:
        connection.start("execute", {"argv": ["sleep", "60"], "execution_id": "dup"})
        read, write = os.pipe()
        params = {"argv": ["true"], "execution_id": "dup", "fds": {"stdout": 0}}
        with pytest.raises(RpcError):
            connection.call("execute", params, fds=[write])
        os.close(write)
        with os.fdopen(read, "rb") as stream:
            assert stream.read() == b""


@pytest.mark.parametrize(
    ("manifest", "field"),
    [
        ({"timeout": {"secs": 10**400}}, "timeout"),
        ({"max_processes": 2**62}, "max_processes"),
        ({"max_memory_bytes": 2**63}, "max_memory_bytes"),
    ],
)
def test_a_number_beyond_reason_is_a_clear_error(
    shared_daemon: Daemon, manifest: dict[str, Any], field: str
) -> None:
    with shared_daemon.connect() as connection, pytest.raises(RpcError) as refused:
        connection.call("execute", {"argv": ["true"], "manifest": manifest})
    assert (refused.value.code, refused.value.field) == (-32602, field)


def test_input_that_nobody_reads_does_not_fail_the_command(shared_daemon: Daemon) -> None:
    text = "x" * 300_000
    with shared_daemon.connect() as connection:
        for stream in (True, False) * 10:
            params = {"argv": ["true"], "stdin": text, "stream": stream}
            assert connection.call("execute", params)["exit_code"] == 0


def test_a_misspelt_parameter_is_named_in_full(shared_daemon: Daemon) -> None:
    with shared_daemon.connect() as connection, pytest.raises(RpcError) as refused:
        connection.call("execute", {"argv": ["true"], "manifest_x": 1})
    assert (refused.value.kind, refused.value.field) == ("InvalidParams", "manifest_x")


def test_the_clock_runs_while_the_client_reads_nothing(daemon: Daemon) -> None:
    """The notification that it started cannot be sent; the command ends in time all the same."""
    read, write = os.pipe()
    with daemon.connect() as deaf, os.fdopen(read, "rb") as output:
        # More than a socket takes, and less than what makes the daemon stop reading requests.
        for _ in range(20):
            deaf.start("rpc.discover")
        asked = deaf.start(
            "execute",
            {"argv": ["sleep", "600"], "stream": True, "execution_id": "deaf",
             "fds": {"stdout": 0}, "manifest": {"timeout": 0.5}},
            fds=[write],
        )  # fmt: skip
        os.close(write)
        assert output.read() == b""  # ends with the command
        # Only now it reads.
        assert deaf.result(asked)["outcome"] == "timeout"
        deaf.notification("execution/started", execution_id="deaf")


@pytest.mark.isolation
def test_a_protected_file_does_not_stay_when_the_client_vanishes(
    daemon: Daemon, workspace: Path
) -> None:
    """The client stops reading, the command makes the file, and then the client is gone."""
    flood = "head -c 3000000 /dev/zero | tr '\\0' a & sleep 1; echo evil > .envrc; sleep 20"
    with daemon.connect() as client:
        client.start(
            "execute",
            {"argv": ["sh", "-c", flood], "stream": True, "preset": "workspace-write",
             "workspace": str(workspace)},
        )  # fmt: skip
        deadline = time.monotonic() + 20
        while not list(workspace.glob(".sandboxd-kept/*/*")):
            assert time.monotonic() < deadline, os.listdir(workspace)
            time.sleep(0.05)
    assert not (workspace / ".envrc").exists()


@pytest.mark.isolation
def test_the_config_cannot_be_made_from_inside(daemon: Daemon) -> None:
    """There is none yet: a command that made it would decide about the next daemon's walls."""
    config = daemon.home / ".config" / "sandboxd" / "config.toml"
    assert not config.exists()
    with daemon.connect() as connection:
        connection.call(
            "execute",
            {"argv": ["sh", "-c", f"mkdir -p {config.parent}; echo x > {config}"],
             "manifest": {"fs_write_allow": [str(daemon.home)]}},
        )  # fmt: skip
        with pytest.raises(RpcError) as refused:
            connection.call(
                "execute",
                {"argv": ["true"], "manifest": {"fs_write_allow": [str(config.parent)]}},
            )
    assert refused.value.kind == "PathDenied"
    assert not config.exists()


def test_a_field_that_a_named_backend_cannot_enforce_is_refused_before_it_is_opened(
    daemon: Daemon,
) -> None:
    wish = {"backend": "bubblewrap", "manifest": {"max_cpus": 1}}
    with daemon.connect() as connection:
        for method, params in (("execute", {"argv": ["true"], **wish}), ("sandbox/create", wish)):
            with pytest.raises(RpcError) as refused:
                connection.call(method, params)
            assert refused.value.kind == "PolicyNotSupported"
    assert not [p for p in daemon.descendants() if "bwrap" in str(p)]


def test_the_daemon_works_where_children_are_ignored(start_daemon: Any) -> None:
    """A shell's `trap "" CHLD` is inherited: without care no child could be waited for."""
    daemon = start_daemon(prefix=["sh", "-c", 'trap "" CHLD; exec "$@"', "sh"])
    with Connection(daemon.socket) as connection:
        assert stdout_of(connection.call("execute", {"argv": ["echo", "hi"]})) == "hi\n"


def test_a_client_that_cannot_be_answered_leaves_nothing_running(daemon: Daemon) -> None:
    """Its socket takes no answer: that is found out while sending, and is its end as well."""
    with daemon.connect() as half:
        half.socket.shutdown(socket.SHUT_RD)
        half.start("execute", {"argv": ["sleep", "987"]})
        half.start("execution/list")
    deadline = time.monotonic() + 20
    while any("987" in str(process) for process in daemon.descendants()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    with daemon.connect() as other:
        while (status := other.call("status"))["clients"] != 1 or status["executions"]:
            assert time.monotonic() < deadline, status
            time.sleep(0.05)


def test_streaming_clients_that_vanish_leave_nothing_running(daemon: Daemon) -> None:
    for _ in range(25):
        with daemon.connect() as gone:
            params = {"argv": ["sh", "-c", "yes & sleep 988"], "stream": True}
            gone.start("execute", params)
            gone.notification("execution/started")
    deadline = time.monotonic() + 20
    while any("988" in str(process) for process in daemon.descendants()):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_subscriptions_are_bounded(daemon: Daemon) -> None:
    """Each event is sent to each of them: one client must not make every command slow."""
    with ExitStack() as clients:
        connections = [clients.enter_context(daemon.connect()) for _ in range(10)]
        refused = 0
        for connection in connections:
            for _ in range(MAX_SUBSCRIPTIONS + 1):
                answer = connection.answer(connection.start("events/subscribe"))
                refused += "error" in answer and answer["error"]["data"]["kind"] == "Busy"
        assert refused == 10 * (MAX_SUBSCRIPTIONS + 1) - MAX_SUBSCRIPTIONS_IN_ALL
    with daemon.connect() as other:  # those of ended connections do not count
        assert wait_for_subscription(other)


def wait_for_subscription(client: Connection) -> bool:
    until = time.monotonic() + 20
    while time.monotonic() < until:
        if "result" in client.answer(client.start("events/subscribe")):
            return True
        time.sleep(0.05)
    return False


def test_attaching_again_and_again_is_bounded(daemon: Daemon) -> None:
    """Everything that a command prints is sent to each of them."""
    with ExitStack() as stack:
        first, *others = [stack.enter_context(daemon.connect()) for _ in range(7)]
        detached = {"argv": ["sleep", "60"], "detach": True, "execution_id": "watched"}
        first.call("execute", detached)
        busy = 0
        for client in others:
            asked = {"execution_id": "watched"}
            numbers = [client.start("execution/attach", asked) for _ in range(MAX_FOLLOWS + 1)]
            busy += sum("error" in client.answer(number) for number in numbers)
        assert busy == len(others) * (MAX_FOLLOWS + 1) - MAX_FOLLOWS_IN_ALL
        for client in others:
            client.close()
        deadline = time.monotonic() + 20
        while "error" in first.answer(first.start("execution/attach", {"execution_id": "watched"})):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        first.call("execution/cancel", {"execution_id": "watched"})


def test_a_detached_execution_that_cannot_be_followed_is_given_up(daemon: Daemon) -> None:
    with daemon.connect() as client:
        streamed = {"argv": ["sleep", "60"], "detach": True, "stream": True}
        numbers = [client.start("execute", streamed) for _ in range(MAX_FOLLOWS + 3)]
        answers = [client.answer(number) for number in numbers]
        begun = {a["result"]["execution_id"] for a in answers if "result" in a}
        assert len(begun) == MAX_FOLLOWS
        listed = client.call("execution/list")["executions"]
        for execution in listed:
            client.call("execution/cancel", {"execution_id": execution["execution_id"]})
        assert {execution["execution_id"] for execution in listed} == begun


@pytest.mark.parametrize("method", ["session/open", "execution/list"])
def test_the_daemon_stops_while_a_client_goes_on_sending(method: str) -> None:
    """A client that reads no answers, and whose requests would take for ever to refuse."""
    line = b'{"jsonrpc":"2.0","id":1,"method":"%s","params":{}}\n' % method.encode()
    stop = threading.Event()

    def flood(noisy: Connection) -> None:
        with suppress(OSError):
            while not stop.is_set():
                noisy.send_raw(line * 50)

    with running_daemon() as daemon, ExitStack() as stack:
        noisy = [stack.enter_context(daemon.connect()) for _ in range(4)]
        threads = [threading.Thread(target=flood, args=(one,)) for one in noisy]
        for thread in threads:
            thread.start()
        try:
            with daemon.connect() as other:
                assert stdout_of(other.call("execute", {"argv": ["echo", "hi"]})) == "hi\n"
            assert daemon.stop() == 0
        finally:
            stop.set()
            for one in noisy:
                one.close()
            for thread in threads:
                thread.join()
