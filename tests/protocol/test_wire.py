"""Decoding: hostile JSON ends in one of our errors, and the error names the field."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxd.rpc.answers.large import PIECE, escape
from sandboxd_proto.errors import InvalidParams, ManifestInvalid, ParseError
from sandboxd_proto.manifest import Manifest, manifest_from, manifest_from_toml
from sandboxd_proto.messages.execute import ExecuteParams
from sandboxd_proto.messages.execution import NoParams
from sandboxd_proto.methods import METHODS
from sandboxd_proto.wire import MOST_VALUES, convert, decode_json, encode, has_more_values

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=15,
)
# Objects with the right names and whatever values: the way past the first check.
fields = st.sampled_from([*ExecuteParams.__struct_fields__, "unknown"])
execute_like = st.dictionaries(fields, json_values, max_size=6)


@given(st.binary())
def test_any_bytes_are_json_or_a_parse_error(data: bytes) -> None:
    with suppress(ParseError):
        decode_json(data)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b'{"a": "\xff"}',
        b'{"a": "\xed\xa0\x80"}',
        b"[" * 100_000,
        b"[" * 100_000 + b"]" * 100_000,
        b'{"a":' * 100_000,
        b"{} {}",
        b"nan",
        b'"\\ud800"',
        b'{"a":1,}',
    ],
)
def test_broken_json_is_a_parse_error(data: bytes) -> None:
    with pytest.raises(ParseError):
        decode_json(data)


@pytest.mark.parametrize("number", ["1e999", "-1e999", "9" * 5000])
def test_a_number_that_no_machine_has_is_a_parse_error(number: str) -> None:
    with pytest.raises(ParseError):
        decode_json(f'{{"execution_id": "x", "signal": {number}}}'.encode())


def test_a_number_too_large_for_a_float_is_manifest_invalid() -> None:
    with pytest.raises(ManifestInvalid) as caught:
        manifest_from(decode_json(b'{"timeout": %d}' % 10**400))
    assert caught.value.field == "timeout"


def test_a_huge_number_in_toml_is_manifest_invalid() -> None:
    with pytest.raises(ManifestInvalid):
        manifest_from_toml("[sandbox]\ntimeout = " + "9" * 5000)


@given(json_values)
def test_what_is_encoded_is_decoded_the_same(value: Any) -> None:
    assert decode_json(encode(value)) == json.loads(encode(value))
    assert b"\n" not in encode(value)  # one message a line


@given(st.one_of(json_values, execute_like))
def test_any_value_is_params_or_invalid_params(value: Any) -> None:
    for method in METHODS:
        with suppress(InvalidParams):
            assert isinstance(convert(value, method.params), method.params)


@given(st.one_of(json_values, execute_like))
def test_any_value_is_a_manifest_or_manifest_invalid(value: Any) -> None:
    with suppress(ManifestInvalid):
        assert isinstance(manifest_from(value), Manifest)


@given(st.text())
def test_any_text_is_a_toml_manifest_or_manifest_invalid(text: str) -> None:
    for document in (text, "[sandbox]\n" + text):
        with suppress(ManifestInvalid):
            assert isinstance(manifest_from_toml(document), Manifest)


def test_deeply_nested_toml_is_manifest_invalid() -> None:
    with pytest.raises(ManifestInvalid):
        manifest_from_toml("[sandbox]\nenv = " + "[" * 100_000)


@pytest.mark.parametrize(
    ("value", "field"),
    [
        ({}, "argv"),
        ({"argv": "true"}, "argv"),
        ({"argv": [1]}, "argv[0]"),
        ({"argv": ["a", None]}, "argv[1]"),
        ({"argv": ["true"], "cwd": 1}, "cwd"),
        ({"argv": ["true"], "stream": "yes"}, "stream"),
        ({"argv": ["true"], "pty": {"rows": "many"}}, "pty.rows"),
        ({"argv": ["true"], "fds": {"stdout": "one"}}, "fds.stdout"),
        ({"argv": ["true"], "manifest": {"fs_read_allow": ["/", 7]}}, "manifest.fs_read_allow[1]"),
        ({"argv": ["true"], "manifest": {"fs_raed_allow": []}}, "manifest.fs_raed_allow"),
        ({"argv": ["true"], "commnd": "x"}, "commnd"),
        ({"argv": ["true"], "manifest": {"network": {"kind": "dney"}}}, "manifest.network.kind"),
    ],
)
def test_the_error_names_the_field(value: Any, field: str) -> None:
    with pytest.raises(InvalidParams) as caught:
        convert(value, ExecuteParams)
    assert caught.value.field == field


@pytest.mark.parametrize("value", [[], [1], "x", 1, None, True])
def test_params_are_objects(value: Any) -> None:
    with pytest.raises(InvalidParams):
        convert(value, NoParams)


def test_an_unknown_field_is_refused_by_every_method() -> None:
    for method in METHODS:
        with pytest.raises(InvalidParams):
            convert({"no_such_field": 1}, method.params)


def values_in(value: Any) -> int:
    """What `has_more_values` counts: commas, and the opening of arrays and objects."""
    if isinstance(value, list | dict):
        inner = value.values() if isinstance(value, dict) else value
        return 1 + max(0, len(value) - 1) + sum(map(values_in, inner))
    return 0


@given(json_values)
def test_values_are_counted_without_making_them(value: Any) -> None:
    """Commas and brackets in strings do not count, whatever is escaped in them."""
    count = values_in(value)
    for text in (json.dumps(value), json.dumps(value, ensure_ascii=False, indent=1)):
        frame = text.encode("utf-8", "replace")
        assert not has_more_values(frame, count)
        assert count == 0 or has_more_values(frame, count - 1)


@pytest.mark.parametrize("value", [b"0,", b"{},", b'"a",', b"[0],", b'"\\\\",', b'"\\"",'])
def test_a_message_of_very_many_values_is_refused(value: bytes) -> None:
    with pytest.raises(ParseError, match="more than 150000 values"):
        decode_json(b"[" + value * (MOST_VALUES + 1) + b"0]")


@pytest.mark.parametrize("text", [",[{" * 1_000_000, '\\"' * 1_000_000, "\\" * 1_000_000, '"' * 99])
def test_a_large_text_is_one_value(text: str) -> None:
    assert decode_json(json.dumps({"stdin": text, "argv": ["cat"]}).encode())["stdin"] == text


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=200))
def test_output_that_is_escaped_in_pieces_is_the_same(text: str) -> None:
    many = text * (1 + 3 * PIECE // max(1, len(text)))
    assert escape(many) == encode(many)
