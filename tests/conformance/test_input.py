"""What a command reads: from the request, while it runs, and the end of it."""

from __future__ import annotations

import base64

import pytest
from support.rpc import RpcError
from support.runs import Ran
from support.subject import Subject


def test_text_reaches_stdin(subject: Subject) -> None:
    assert subject.run("cat", stdin="grün\n").stdout == "grün\n"


def test_bytes_reach_stdin(subject: Subject) -> None:
    data = bytes(range(256)) * 16
    ran = subject.run("cat", stdin={"base64": base64.b64encode(data).decode()})
    assert ran.bytes_of("stdout") == data


def test_stdin_is_empty_unless_given(subject: Subject) -> None:
    ran = subject.run("cat")
    assert ran.exited(0)
    assert ran.stdout == ""


def test_much_input_and_much_output_at_once_do_not_block(subject: Subject) -> None:
    text = "0123456789abcdef" * (1 << 16)
    assert subject.run("cat", stdin=text).stdout == text


def test_input_that_is_not_read_is_no_error(subject: Subject) -> None:
    assert subject.run("true", stdin="x" * (1 << 20)).exited(0)


def test_writing_while_it_runs(subject: Subject) -> None:
    """The first write may follow the request at once; the answer shows that it was read."""
    connection = subject.connection
    script = "read a; echo got $a; read b; echo got $b; cat"
    params = {"argv": ["sh", "-c", script], "stdin_open": True, "stream": True, "capture": True}
    request = connection.start("execute", {**params, "execution_id": "typing"})
    for text in ("one", "two"):
        connection.call("execution/write", {"execution_id": "typing", "data": f"{text}\n"})
        connection.wait_until(lambda text=text: f"got {text}\n" in connection.output("typing"))
    connection.call("execution/write", {"execution_id": "typing", "base64": "/wA="})
    connection.call("execution/close_stdin", {"execution_id": "typing"})
    ran = Ran(connection.result(request))
    assert ran.exited(0)
    assert ran.bytes_of("stdout") == b"got one\ngot two\n\xff\x00"


def test_stdin_that_was_not_left_open_cannot_be_written(subject: Subject) -> None:
    connection = subject.connection
    request = connection.start("execute", {"argv": ["sleep", "60"], "execution_id": "closed"})
    with pytest.raises(RpcError) as refusal:
        connection.call("execution/write", {"execution_id": "closed", "data": "x"})
    assert refusal.value.code == -32602
    connection.call("execution/cancel", {"execution_id": "closed"})
    assert connection.result(request)["outcome"] == "cancelled"
