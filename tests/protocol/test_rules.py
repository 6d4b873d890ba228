"""The rules of the wire, with a raw client and a real daemon: what every client relies on."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.daemon import Daemon, stdout_of
from support.rpc import Closed, Connection, Framing, RpcError, framed

from sandboxd_proto.framing import FRAME_LIMIT
from sandboxd_proto.openrpc import document

pytestmark = pytest.mark.requires("bubblewrap")
FRAMINGS: tuple[Framing, ...] = ("lines", "headers")


def works(connection: Connection) -> bool:
    return bool(connection.call("status")["version"])


def refusal(connection: Connection) -> dict[str, Any]:
    """The next error answer that has no id."""
    connection.wait_until(lambda: bool(connection.unaddressed))
    error: dict[str, Any] = connection.unaddressed.pop(0)["error"]
    return error


@pytest.mark.parametrize("framing", FRAMINGS)
def test_both_framings_are_served_on_one_socket(shared_daemon: Daemon, framing: Framing) -> None:
    with shared_daemon.connect(framing=framing) as connection:
        assert stdout_of(connection.call("execute", {"argv": ["echo", "Grüße"]})) == "Grüße\n"


def test_frames_may_arrive_byte_by_byte(shared_daemon: Daemon) -> None:
    with shared_daemon.connect(framing="headers") as connection:
        request = {"jsonrpc": "2.0", "id": "slow", "method": "status", "params": {}}
        for byte in framed(json.dumps(request).encode(), "headers"):
            connection.send_raw(bytes([byte]))
        assert connection.result("slow")["version"]


@pytest.mark.parametrize("first", [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01", b"\x00", b'"x"\n'])
def test_another_first_byte_is_refused_and_the_connection_ends(
    shared_daemon: Daemon, first: bytes
) -> None:
    with shared_daemon.connect() as connection:
        connection.send_raw(first)
        answer = connection.receive()
        assert (answer["id"], answer["error"]["code"]) == (None, -32700)
        with pytest.raises((Closed, ConnectionResetError)):
            connection.receive()


@pytest.mark.parametrize("framing", FRAMINGS)
@pytest.mark.parametrize(
    "body",
    [b"{not json}", b'{"a":"\xff"}', b"[" * 50_000, b"{" + b" " * 9000, b'{"id":1,"id":}'],
    ids=["words", "utf-8", "deep", "half", "cut"],
)
def test_what_is_not_json_is_answered_and_the_connection_stays(
    shared_daemon: Daemon, framing: Framing, body: bytes
) -> None:
    with shared_daemon.connect(framing=framing) as connection:
        connection.send_raw(framed(body, framing))
        assert refusal(connection)["code"] == -32700
        assert works(connection)


@pytest.mark.parametrize("framing", FRAMINGS)
def test_a_frame_over_the_limit_is_answered_and_the_connection_stays(
    shared_daemon: Daemon, framing: Framing
) -> None:
    with shared_daemon.connect(framing=framing) as connection:
        connection.send_raw(framed(b"{" + b" " * FRAME_LIMIT + b"}", framing))
        assert str(FRAME_LIMIT) in refusal(connection)["message"]
        assert works(connection)


def test_a_frame_at_the_limit_is_read(shared_daemon: Daemon) -> None:
    head = b'{"jsonrpc":"2.0","id":1,"method":"status","params":{}'
    with shared_daemon.connect() as connection:
        connection.send_raw(framed(head + b" " * (FRAME_LIMIT - len(head) - 1) + b"}", "lines"))
        assert connection.result(1)["version"]


@pytest.mark.parametrize(
    "message",
    [
        {"jsonrpc": "1.0", "id": 1, "method": "status"},
        {"id": 1, "method": "status"},
        {"jsonrpc": "2.0", "id": 1},
        {"jsonrpc": "2.0", "id": 1, "method": 7},
        {"jsonrpc": "2.0", "id": {}, "method": "status"},
        {"jsonrpc": "2.0", "id": [1], "method": "status"},
        {"jsonrpc": "2.0", "id": 1, "method": "status", "params": 7},
        {},
        [],
        [1],
        [[]],
    ],
    ids=json.dumps,
)
def test_what_is_no_request_is_answered_with_an_error(shared_daemon: Daemon, message: Any) -> None:
    with shared_daemon.connect() as connection:
        connection.send(message)
        answer = connection.receive()
        first = answer[0] if isinstance(answer, list) else answer
        assert first["error"]["code"] in (-32600, -32602)
        assert works(connection)


@pytest.mark.parametrize("identity", ["text", 0, -1, 2**53, 1.5, ""])
def test_the_id_comes_back_as_it_was(shared_daemon: Daemon, identity: Any) -> None:
    with shared_daemon.connect() as connection:
        connection.send({"jsonrpc": "2.0", "id": identity, "method": "status", "params": {}})
        answer = connection.answer(identity)
        assert answer["id"] == identity
        assert answer["jsonrpc"] == "2.0"


def test_params_may_be_left_out_or_empty(shared_daemon: Daemon) -> None:
    with shared_daemon.connect() as connection:
        connection.send({"jsonrpc": "2.0", "id": 1, "method": "status"})
        assert connection.result(1)["version"]


@pytest.mark.parametrize("params", [[], ["true"], [{"argv": ["true"]}]])
def test_positional_params_are_refused(shared_daemon: Daemon, params: Any) -> None:
    with shared_daemon.connect() as connection:
        connection.send({"jsonrpc": "2.0", "id": 1, "method": "execute", "params": params})
        with pytest.raises(RpcError) as caught:
            connection.result(1)
        assert caught.value.code == -32602


def test_an_unknown_method_is_named(shared_daemon: Daemon) -> None:
    with shared_daemon.connect() as connection, pytest.raises(RpcError) as caught:
        connection.call("execution/frobnicate")
    assert caught.value.code == -32601
    assert "execution/frobnicate" in caught.value.message


@pytest.mark.parametrize("with_id", [True, False])
def test_a_request_without_id_that_would_run_something_is_not_run(
    shared_daemon: Daemon, workspace: Path, with_id: bool
) -> None:
    params = {
        "argv": ["touch", str(workspace / "ran")],
        "manifest": {"fs_write_allow": [str(workspace)]},
    }
    with shared_daemon.connect() as connection:
        if with_id:
            connection.call("execute", params)
        else:
            connection.notify("execute", params)
        # Answered in turn, and by then the first would have run.
        connection.call("execute", {"argv": ["true"]})
    assert (workspace / "ran").exists() == with_id


def test_a_batch_is_answered_with_one_array(shared_daemon: Daemon) -> None:
    with shared_daemon.connect() as connection:
        connection.send([
            {"jsonrpc": "2.0", "id": "a", "method": "execute", "params": {"argv": ["echo", "a"]}},
            {"jsonrpc": "2.0", "method": "status", "params": {}},
            {"jsonrpc": "2.0", "id": "b", "method": "no/such"},
            {"jsonrpc": "2.0", "id": "c", "method": "status"},
            7,
        ])  # fmt: skip
        connection.wait_until(lambda: bool(connection.batches))
        answers = {answer["id"]: answer for answer in connection.batches[0]}
        assert set(answers) == {"a", "b", "c", None}
        assert stdout_of(answers["a"]["result"]) == "a\n"
        assert answers["b"]["error"]["code"] == -32601
        assert answers[None]["error"]["code"] == -32600
        assert not connection.unaddressed


def test_a_batch_of_notifications_is_not_answered(shared_daemon: Daemon) -> None:
    with shared_daemon.connect() as connection:
        connection.send([{"jsonrpc": "2.0", "method": "$/ignored", "params": {}}] * 3)
        assert works(connection)
        assert not connection.batches
        assert not connection.unaddressed


def test_other_dollar_notifications_are_ignored(shared_daemon: Daemon) -> None:
    with shared_daemon.connect() as connection:
        connection.notify("$/setTrace", {"value": "off"})
        connection.notify("$/cancelRequest", {"id": "of nobody"})
        connection.notify("$/cancelRequest", {})
        assert works(connection)
        assert not connection.unaddressed


def test_an_execution_exists_before_the_next_frame_is_read(shared_daemon: Daemon) -> None:
    with shared_daemon.connect() as connection:
        run = connection.start(
            "execute", {"argv": ["cat"], "stdin_open": True, "execution_id": "typed"}
        )
        connection.start("execution/write", {"execution_id": "typed", "data": "at once\n"})
        connection.start("execution/close_stdin", {"execution_id": "typed"})
        assert stdout_of(connection.result(run)) == "at once\n"


def test_a_live_execution_id_cannot_be_used_twice(shared_daemon: Daemon) -> None:
    params = {"argv": ["cat"], "stdin_open": True, "execution_id": "twice"}
    with shared_daemon.connect() as connection:
        first = connection.start("execute", params)
        with pytest.raises(RpcError) as caught:
            connection.call("execute", params)
        assert (caught.value.code, caught.value.field) == (-32602, "execution_id")
        connection.call("execution/close_stdin", {"execution_id": "twice"})
        assert connection.result(first)["outcome"] == "exited"


def test_an_execution_belongs_to_its_connection(shared_daemon: Daemon) -> None:
    with shared_daemon.connect() as owner, shared_daemon.connect() as stranger:
        run = owner.start("execute", {"argv": ["cat"], "stdin_open": True, "execution_id": "mine"})
        owner.call("execution/write", {"execution_id": "mine", "data": "x"})
        for method in ("execution/cancel", "execution/close_stdin", "execution/wait"):
            with pytest.raises(RpcError) as caught:
                stranger.call(method, {"execution_id": "mine"})
            assert caught.value.kind == "NotFound"
        assert stranger.call("execution/list")["executions"] == []
        owner.call("execution/close_stdin", {"execution_id": "mine"})
        assert stdout_of(owner.result(run)) == "x"


def test_discover_answers_the_committed_document(shared_daemon: Daemon) -> None:
    with shared_daemon.connect() as connection:
        assert connection.call("rpc.discover") == document()


# Openings that lead the daemon into each framing before the nonsense begins.
openings = st.sampled_from(
    [b"", b"{", b"[", b"C", b"Content-Length: 20\r\n\r\n", b"{}\n", b"[1]\n"]
)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(openings, st.binary(max_size=300), st.booleans())
def test_no_bytes_stop_the_daemon(
    shared_daemon: Daemon, opening: bytes, rest: bytes, half_closed: bool
) -> None:
    with shared_daemon.connect() as connection:
        try:
            connection.send_raw(opening + rest)
            if half_closed:
                connection.socket.shutdown(socket.SHUT_WR)
        except (BrokenPipeError, ConnectionResetError):
            pass  # refused at the first byte already
    with shared_daemon.connect() as connection:
        assert connection.call("initialize")["protocol"] == 1


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("message", ["signal", "cancel", "$/cancelRequest"])
def test_what_ends_a_command_may_follow_it_at_once(
    daemon: Daemon, message: str, stream: bool
) -> None:
    """The command is on its way and not yet itself: it is ended all the same, and properly."""
    with daemon.connect() as connection:
        for number in range(15):
            name = f"early-{message}-{stream}-{number}"
            asked = {"argv": ["sleep", "600"], "execution_id": name, "stream": stream}
            request = connection.start("execute", asked)
            if message == "$/cancelRequest":
                connection.send({"jsonrpc": "2.0", "method": message, "params": {"id": request}})
            else:
                more = {"signal": "SIGTERM"} if message == "signal" else {}
                connection.start(f"execution/{message}", {"execution_id": name, **more})
            result = connection.result(request)
            wanted = "signaled" if message == "signal" else "cancelled"
            assert result["outcome"] == wanted, result
            assert result["signal"] in ((15,) if message == "signal" else (9, None)), result


@pytest.mark.parametrize(
    ("method", "params", "remedy"),
    [
        ("execution/resize", {"execution_id": "cat", "rows": 1, "cols": 1}, '"pty"'),
        ("sandbox/unforward", {"sandbox": "box", "forward": "fw-none"}, "sandbox/get"),
        ("events/unsubscribe", {"subscription": "su-none"}, "events/subscribe"),
        ("events/subscribe", {"after": "x"}, '"0"'),
        ("execute", {"argv": ["a\0b"]}, "stdin"),
        ("session/open", {"token": "t"}, "session/attach"),
    ],
)
def test_an_error_says_what_to_do(
    shared_daemon: Daemon, method: str, params: dict[str, Any], remedy: str
) -> None:
    with shared_daemon.connect() as connection:
        connection.call("sandbox/create", {"name": "box", "scope": "connection"})
        running = {"argv": ["cat"], "stdin_open": True, "execution_id": "cat"}
        connection.start("execute", running)
        with pytest.raises(RpcError) as refused:
            connection.call(method, params)
        assert remedy in refused.value.data["remedy"]


@pytest.mark.parametrize(
    ("stream", "remedy"),
    [
        (b"X", "Content-Length"),
        (b"Content-Type: x\r\n\r\n", "Content-Length: N"),
        (b"Content-Length: 99999999\r\n\r\n", "execution/write"),
        (b'Content-Length: 2\r\n\r\n{}{"jsonrpc":', "each message"),
    ],
    ids=["first byte", "no length", "too large", "no headers"],
)
def test_an_error_of_the_framing_says_what_to_do(
    shared_daemon: Daemon, stream: bytes, remedy: str
) -> None:
    framing: Framing = "lines" if stream == b"X" else "headers"
    with shared_daemon.connect(framing=framing) as connection:
        connection.send_raw(stream)
        if b"{}" in stream:
            assert refusal(connection)["code"] == -32600  # the whole message before
        assert remedy in refusal(connection)["data"]["remedy"]
