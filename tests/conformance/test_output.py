"""What a command prints: complete, in order, as bytes, and bounded in memory."""

from __future__ import annotations

import hashlib

from support.subject import Subject

CAPTURE_LIMIT = 8 << 20


def test_streams_are_kept_apart(subject: Subject) -> None:
    ran = subject.shell("echo out; echo err >&2; echo out again")
    assert (ran.stdout, ran.stderr) == ("out\nout again\n", "err\n")
    assert ran.raw["stdout"] == {
        "data": "out\nout again\n", "encoding": "utf-8", "bytes": 14, "truncated": False,
    }  # fmt: skip


def test_bytes_that_are_no_text_come_as_base64(subject: Subject) -> None:
    ran = subject.shell(r"printf '\377\000\001text'; printf 'grün' >&2")
    assert ran.bytes_of("stdout") == b"\xff\x00\x01text"
    assert ran.raw["stdout"]["encoding"] == "base64"
    assert ran.stderr == "grün"
    assert ran.raw["stderr"]["encoding"] == "utf-8"


def test_large_output_is_complete(subject: Subject) -> None:
    code = "import os\nfor n in range(3 * 2**10): os.write(1, bytes([n % 251]) * 2**10)"
    expected = b"".join(bytes([n % 251]) * 2**10 for n in range(3 * 2**10))
    ran = subject.python(code)
    assert ran.exited(0)
    assert hashlib.sha256(ran.bytes_of("stdout")).digest() == hashlib.sha256(expected).digest()


def test_capture_keeps_its_limit_and_counts_the_rest(subject: Subject) -> None:
    ran = subject.python("import os\nfor _ in range(10): os.write(1, b'x' * 2**20)")
    assert ran.exited(0), ran.story
    assert len(ran.raw["stdout"]["data"]) == CAPTURE_LIMIT
    assert ran.raw["stdout"]["truncated"] is True
    assert ran.raw["stdout"]["bytes"] == 10 << 20


def test_streamed_output_is_in_order_and_cut_between_characters(subject: Subject) -> None:
    connection = subject.connection
    code = "import os, time\nfor b in 'grün …'.encode(): os.write(1, bytes([b])); time.sleep(0.01)"
    params = {"argv": ["python3", "-I", "-S", "-c", code], "stream": True, "execution_id": "s"}
    result = connection.call("execute", params)
    pieces = [n["params"] for n in connection.notifications if n["method"] == "execution/output"]
    assert "".join(piece["data"] for piece in pieces) == "grün …"
    assert {piece["encoding"] for piece in pieces} == {"utf-8"}
    assert [piece["seq"] for piece in pieces] == list(range(len(pieces)))
    assert result["stdout"] == {
        "data": "", "encoding": "utf-8", "bytes": 9, "truncated": False,
    }  # fmt: skip


def test_notifications_frame_the_output(subject: Subject) -> None:
    connection = subject.connection
    params = {"argv": ["sh", "-c", "echo a; echo b >&2; exit 4"], "stream": True}
    result = connection.call("execute", {**params, "execution_id": "framed"})
    told = [n["method"] for n in connection.notifications]
    names = [name for name in told if name != "execution/progress"]  # of a sandbox that is made
    assert (names[0], names[-1]) == ("execution/started", "execution/exited")
    assert {*names[1:-1]} == {"execution/output"}
    last = connection.notifications[-1]["params"]
    expected = {"execution_id": "framed", "outcome": "exited", "exit_code": 4, "signal": None}
    assert last == expected
    assert {key: result[key] for key in expected} == expected


def test_output_that_nobody_wants_is_only_counted(subject: Subject) -> None:
    ran = subject.shell("echo text", capture=False)
    assert (ran.raw["stdout"]["data"], ran.raw["stdout"]["bytes"]) == ("", 5)


def test_a_command_that_closes_its_output_runs_on(subject: Subject) -> None:
    assert subject.shell("exec >&- 2>&-; exit 3").exited(3)
