"""Servers that are down, slow, wrong or lost in the middle: a clear error, and nothing is left."""

from __future__ import annotations

import http.server
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.fake_opensandbox import KEY, FakeServer, running_fake
from support.rpc import RpcError
from support.runs import Runner

from sandboxd.backends.owner_identity import supervisor_identity

INHERIT = {"network": "inherit"}
INIT = b'{"type": "init", "text": "c1"}\n\n'


def refused(runner: Runner, *argv: str) -> RpcError:
    with pytest.raises(RpcError) as error:
        runner.run(*(argv or ("true",)), manifest=INHERIT)
    return error.value


@pytest.mark.parametrize(
    "pieces",
    [
        [],
        [INIT],
        [INIT, b'{"type": "stdout", "text": "half'],
        [INIT, b'{"type": "stdout", "text": "line"}\n\n'],
        [INIT, b'{"type": "execution_comp'],
        [INIT, b"<html>bad gateway</html>\n"],
        [INIT, b"[1, 2]\n\n"],
    ],
)
def test_a_stream_without_an_end_is_never_success(
    runner: Runner, fake: FakeServer, pieces: list[bytes]
) -> None:
    fake.faults["command"] = pieces
    error = refused(runner)
    assert error.kind == "SandboxUnavailable"
    assert "result of the command is unknown" in error.message
    assert not fake.sandboxes


def test_a_whole_stream_in_the_same_place_is_success(runner: Runner, fake: FakeServer) -> None:
    fake.faults["command"] = [INIT, b'{"type": "execution_complete"}\n\n']
    assert runner.run("true", manifest=INHERIT).exited(0)


@pytest.mark.parametrize("step", ["create", "get", "endpoint"])
@pytest.mark.parametrize(
    ("fault", "word"), [(500, "made to fail"), (b"<html>", "not JSON"), (b"{}", "sent")]
)
def test_errors_and_nonsense(
    runner: Runner, fake: FakeServer, step: str, fault: Any, word: str
) -> None:
    fake.faults[step] = fault
    error = refused(runner)
    assert error.kind == "SandboxUnavailable", error
    assert word in error.message


def test_a_failed_sandbox_says_why(runner: Runner, fake: FakeServer) -> None:
    add = fake.add

    def failing(body: dict[str, Any]) -> Any:
        made = add(body)
        made.state = "Failed"
        return made

    fake.add = failing  # type: ignore[method-assign]
    assert "it is Failed" in refused(runner).message
    assert not fake.sandboxes


def test_the_server_is_killed_in_the_middle(
    own_fake: FakeServer, daemon_on: Callable[..., Any]
) -> None:
    """The stream breaks with the server; the result is unknown, and the daemon goes on."""
    with daemon_on(own_fake.url) as daemon:
        own_fake.faults["command"] = [INIT, None]
        with daemon.connect() as connection:
            call = connection.start("execute", {"argv": ["sleep", "9"], "manifest": INHERIT})
            _until(lambda: any("/command" in path for _, path, _ in own_fake.requests))
            own_fake.stop()
            with pytest.raises(RpcError) as error:
                connection.result(call)
        assert error.value.kind == "SandboxUnavailable"
        runner = Runner(daemon)
        assert "does not answer" in refused(runner).message
        runner.close()


def test_a_server_that_is_not_there(daemon_on: Callable[..., Any]) -> None:
    with daemon_on("http://127.0.0.1:9") as daemon:
        runner = Runner(daemon)
        error = refused(runner)
        runner.close()
    assert error.kind == "SandboxUnavailable"
    assert "http://127.0.0.1:9" in error.message
    assert "Connect call failed" in error.message or "refused" in error.message


def test_a_sandbox_that_stays_pending(own_fake: FakeServer, daemon_on: Callable[..., Any]) -> None:
    add = own_fake.add

    def pending(body: dict[str, Any]) -> Any:
        made = add(body)
        made.state = "Pending"
        return made

    own_fake.add = pending  # type: ignore[method-assign]
    with daemon_on(own_fake.url, start_secs="1") as daemon:
        runner = Runner(daemon)
        error = refused(runner)
        runner.close()
    assert "does not run after 1 s" in error.message
    assert not own_fake.sandboxes


def test_a_wrong_key(own_fake: FakeServer, daemon_on: Callable[..., Any], key_file: Path) -> None:
    key_file.write_text("wrong-key-of-the-tests")
    with daemon_on(own_fake.url) as daemon:
        runner = Runner(daemon)
        error = refused(runner)
        runner.close()
        assert "refuses the API key" in error.message
        assert "wrong-key-of-the-tests" not in error.message + daemon.log


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604])
def test_a_key_that_others_can_read_is_not_used(
    own_fake: FakeServer, daemon_on: Callable[..., Any], key_file: Path, mode: int
) -> None:
    key_file.chmod(mode)
    with daemon_on(own_fake.url) as daemon:
        runner = Runner(daemon)
        error = refused(runner)
        runner.close()
    assert "can be read by others" in error.message
    assert not own_fake.requests


def test_the_key_is_in_no_log(own_fake: FakeServer, daemon_on: Callable[..., Any]) -> None:
    with daemon_on(own_fake.url) as daemon:
        runner = Runner(daemon)
        assert runner.run("true", manifest=INHERIT).exited(0)
        own_fake.faults["create"] = 500
        refused(runner)
        status = runner.connection.call("status")
        runner.close()
        assert any(key == KEY for _, _, key in own_fake.requests)
        assert KEY not in daemon.log + str(status)


@pytest.fixture
def thief() -> Iterator[tuple[str, list[dict[str, str]]]]:
    """Another server: its address, and the headers that came to it."""
    seen: list[dict[str, str]] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(dict(self.headers.items()))
            self.send_response(200)
            self.end_headers()

        do_POST = do_DELETE = do_GET  # noqa: N815

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield f"127.0.0.1:{server.server_address[1]}", seen
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("step", ["create", "get", "endpoint"])
def test_redirects_are_not_followed(
    runner: Runner, fake: FakeServer, thief: tuple[str, list[dict[str, str]]], step: str
) -> None:
    address, seen = thief
    fake.faults[step] = f"http://{address}/elsewhere"
    error = refused(runner)
    assert f"http://{address}/elsewhere" in error.message
    assert not seen


def test_an_endpoint_elsewhere_gets_no_key(
    runner: Runner, fake: FakeServer, thief: tuple[str, list[dict[str, str]]]
) -> None:
    address, seen = thief
    fake.faults["host"] = f"{address}/proxy/44772"
    assert "result of the command is unknown" in refused(runner).message
    assert seen, "the endpoint was used"
    assert KEY not in str(seen)


@pytest.mark.parametrize(
    "endpoint", ["user@127.0.0.1/x", "a b", "", "http://h/x", "h/x?y", "[::/x"]
)
def test_an_endpoint_that_is_none(runner: Runner, fake: FakeServer, endpoint: str) -> None:
    fake.faults["host"] = endpoint
    assert refused(runner).kind == "SandboxUnavailable"
    assert not fake.sandboxes


def test_an_expired_sandbox(runner: Runner, fake: FakeServer) -> None:
    """It is deleted under its command, as a server does when its time is over."""
    expire = threading.Timer(1.0, lambda: [fake.delete(one) for one in list(fake.sandboxes)])
    expire.start()
    with pytest.raises((RpcError, AssertionError), match=r"unknown|ended by a signal"):
        runner.run("sleep", "60", manifest=INHERIT)
    expire.join()


def test_a_deletion_that_fails_is_repeated(runner: Runner, fake: FakeServer) -> None:
    fake.faults["delete"] = 500
    ran = runner.run("true", manifest=INHERIT)
    assert ran.outcome == "isolation_lost"
    assert fake.sandboxes
    del fake.faults["delete"]
    _until(lambda: not fake.sandboxes)


def test_a_creation_whose_answer_is_lost_is_cleaned_up(runner: Runner, fake: FakeServer) -> None:
    fake.faults.update(create=500, create_anyway=True)
    refused(runner)
    _until(lambda: not fake.sandboxes)


def test_what_a_killed_daemon_left_is_deleted_and_nothing_else(
    own_fake: FakeServer, daemon_on: Callable[..., Any]
) -> None:
    """The server comes up after the daemon, so that the leftovers are there before it is asked."""
    other = own_fake.add({"metadata": {"sandboxd-owner": "another", "sandboxd-run": "1"}})
    foreign = own_fake.add({"metadata": {"team": "a"}})
    own_fake.faults["list"] = 503
    with daemon_on(own_fake.url) as daemon:
        metadata = {"sandboxd-owner": supervisor_identity(daemon.socket), "sandboxd-run": "earlier"}
        ours = own_fake.add({"metadata": metadata})
        del own_fake.faults["list"]
        _until(lambda: ours.id in own_fake.deleted)
    assert set(own_fake.sandboxes) == {other.id, foreign.id}


def test_a_daemon_that_stops_deletes_its_sandboxes(daemon_on: Callable[..., Any]) -> None:
    with running_fake() as fake:
        with daemon_on(fake.url) as daemon, daemon.connect() as connection:
            connection.call("sandbox/create", {"manifest": INHERIT})
            assert len(fake.sandboxes) == 1
        assert not fake.sandboxes


def _until(met: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not met():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_broken_stream_in_a_persistent_sandbox_ends_the_command(
    runner: Runner, fake: FakeServer
) -> None:
    made = runner.connection.call("sandbox/create", {"manifest": INHERIT})["sandbox"]
    fake.faults["command"] = [INIT]
    with pytest.raises(RpcError, match="result of the command is unknown"):
        runner.run("true", sandbox=made)
    assert [path for method, path, _ in fake.requests if method == "DELETE" and "id=c1" in path]
    runner.connection.call("sandbox/destroy", {"sandbox": made})
