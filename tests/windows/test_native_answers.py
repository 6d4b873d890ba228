"""Answers have paths as Windows' users write them; what the command said is not touched."""

from __future__ import annotations

import pytest

from sandboxd.platform.windows.paths import native_text
from sandboxd.rpc.answers.windows_paths import native_answer
from sandboxd.rpc.dispatch import failure
from sandboxd_proto.denial import Denial
from sandboxd_proto.errors import PathDenied
from sandboxd_proto.messages.audit import Record
from sandboxd_proto.messages.execute import Captured
from sandboxd_proto.messages.notifications import Output


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("/C:/Users/me/x is hidden", "C:\\Users\\me\\x is hidden"),
        ("no /C:/Program Files (x86)/Git/bin", "no C:\\Program Files (x86)\\Git\\bin"),
        ("see /C:/work: it is read/write", "see C:\\work: it is read/write"),
        ("/C: is too wide", "C:\\ is too wide"),
        ("'/D:/a', '/E:/b'", "'D:\\a', 'E:\\b'"),
        ("http://host/C:/x and/or", "http://host/C:/x and/or"),
        ("/usr/bin at 10:30", "/usr/bin at 10:30"),
    ],
)
def test_sentences(said: str, shown: str) -> None:
    assert native_text(said) == shown


def test_a_denial() -> None:
    found = native_answer(
        Denial(
            kind="filesystem_read", operation="open", target="/C:/my files/a b", layer="engine",
            evidence="text", confidence="high", message="/C:/x is not readable",
            remedy={"fs_read_allow": ["/C:/my files/a b"]},
        )
    )  # fmt: skip
    assert found.target == "C:\\my files\\a b"
    assert found.message == "C:\\x is not readable"
    assert found.remedy == {"fs_read_allow": ["C:\\my files\\a b"]}


def test_an_error() -> None:
    error = PathDenied("/C:/x cannot be allowed", field="fs_read_allow[0]")
    found = native_answer(failure(1, error))
    assert found["error"]["message"] == "C:\\x cannot be allowed"
    assert found["error"]["data"]["field"] == "fs_read_allow[0]"


def test_what_the_command_said_stays() -> None:
    stream = Captured(data="/C:/x", bytes=5)
    record = Record(
        v=1, seq=1, at="", type="", session=None, execution_id=None, client=None,
        data={"cwd": "/C:/x"}, prev="",
    )  # fmt: skip
    output = Output(execution_id="/C:/x", stream="stdout", seq=0, data="/C:/x", encoding="utf-8")
    said = {"argv": ["/C:/x"], "env": {"A": "/C:/x"}, "stdout": stream, "r": record, "o": output}
    assert native_answer(said) == said
