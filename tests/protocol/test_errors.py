"""Errors keep code, kind, field and remedy on their way over the wire."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sandboxd_proto.errors import BY_CODE, ERRORS, SandboxdError, from_wire
from sandboxd_proto.wire import decode_json, encode

# The table of the protocol: clients in other languages are written from it.
TABLE = {
    "ParseError": -32700, "InvalidRequest": -32600, "MethodNotFound": -32601,
    "InvalidParams": -32602, "ManifestInvalid": -32602, "InternalError": -32603,
    "SandboxUnavailable": -32001, "PolicyNotSupported": -32002, "PathDenied": -32003,
    "ExecFailed": -32004, "NotFound": -32005, "Unauthorized": -32006, "BudgetExceeded": -32007,
    "ApprovalDenied": -32008, "Busy": -32009, "ShuttingDown": -32010, "CeilingExceeded": -32011,
    "ApprovalPending": -32012,
    "Conflict": -32013,
    "FileError": -32014,
}  # fmt: skip


def test_the_codes_are_the_protocols() -> None:
    assert {error.kind: error.code for error in ERRORS} == TABLE


@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.kind)
def test_an_error_comes_back_as_itself(kind: type[SandboxdError]) -> None:
    sent = kind("it failed", field="fs_read_allow[0]", remedy="do this", path="/x")
    data = decode_json(encode(sent.data()))
    got = from_wire(sent.code, sent.message, data)
    assert type(got) is kind
    assert (got.message, got.field, got.remedy) == ("it failed", "fs_read_allow[0]", "do this")
    assert got.facts == {"path": "/x"}
    assert str(got) == "it failed (do this)"


def test_what_was_not_said_is_not_sent() -> None:
    for kind in ERRORS:
        assert kind("it failed").data() == {"kind": kind.kind}


@pytest.mark.parametrize("code", sorted(set(TABLE.values())))
def test_an_unknown_kind_keeps_the_class_of_its_code(code: int) -> None:
    assert type(from_wire(code, "m", {"kind": "FromTheFuture"})) is BY_CODE[code]
    assert from_wire(code, "m", None).code == code


hostile_data = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.text() | st.sampled_from(["kind", "field", "remedy", "message"]), inner
        )
    ),
    max_leaves=8,
)


@given(st.integers(), st.text(), hostile_data)
@example(-32603, "m", {"kind": []})
@example(-32603, "m", {"message": "x", "self": "y"})
@example(-32603, "m", {"remedy": "do this"})
def test_a_client_survives_any_error_answer(code: int, message: str, data: Any) -> None:
    error = from_wire(code, message, data)
    assert isinstance(error, SandboxdError)
    assert error.message == message
    assert str(error).startswith(message)
