"""Values as people write them are understood; errors name the value and what it can be."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandboxd.policy import presets
from sandboxd_proto.amounts import bytes_in, seconds_in, shown_bytes, shown_seconds
from sandboxd_proto.errors import InvalidParams, ManifestInvalid
from sandboxd_proto.manifest import Network, manifest_from, manifest_from_toml
from sandboxd_proto.messages.execute import ExecuteParams
from sandboxd_proto.messages.session import SessionAttachParams
from sandboxd_proto.wire import convert


@pytest.mark.parametrize(
    ("manifest", "field", "value"),
    [
        ({"timeout": "30s"}, "timeout", 30.0),
        ({"timeout": "5 minutes"}, "timeout", 300.0),
        ({"timeout": "never"}, "timeout", "none"),
        ({"max_memory_bytes": "256M"}, "max_memory_bytes", 256 << 20),
        ({"tmp_bytes": 1e9}, "tmp_bytes", 1_000_000_000),
        ({"max_cpu_secs": "2m"}, "max_cpu_secs", 120.0),
        ({"max_processes": "20"}, "max_processes", 20),
        ({"fs_read_allow": "/a"}, "fs_read_allow", ["/a"]),
        ({"network": "none"}, "network", "deny"),
        ({"network": "all"}, "network", "inherit"),
        ({"network": ["a.example"]}, "network", Network(kind="allow_hosts", hosts=["a.example"])),
    ],
)
def test_what_people_mean(manifest: dict[str, Any], field: str, value: Any) -> None:
    assert getattr(manifest_from(manifest), field) == value


@pytest.mark.parametrize(
    ("line", "message", "remedy"),
    [
        ('network = "allow"', 'network cannot be "allow"', '"deny", "inherit" (every host)'),
        ('timeout = "soon"', 'timeout cannot be "soon"', '"30s"'),
        ('max_memory_bytes = "lots"', 'max_memory_bytes cannot be "lots"', '"256M"'),
        ('base = "all"', 'base cannot be "all"', "one of minimal, host"),
        ("fs_raed_allow = []", "there is no field 'fs_raed_allow'", "did you mean fs_read_allow?"),
        ("fs_deny = [1]", "an item of fs_deny cannot be 1", "it is text"),
        ('env = ["A=b"]', 'an item of env cannot be "A=b"', '{ NAME = "value" }'),
        ("max_processes = 1.5", "max_processes cannot be 1.5", "a whole number"),
    ],
)
def test_what_is_not_understood_is_said_in_the_writers_words(
    line: str, message: str, remedy: str
) -> None:
    with pytest.raises(ManifestInvalid) as refused:
        manifest_from_toml(f"[sandbox]\n{line}\n")
    assert refused.value.message == message
    assert remedy in (refused.value.remedy or "")


@pytest.mark.parametrize(
    ("params", "message", "remedy"),
    [
        ({"argv": "ls"}, 'argv cannot be "ls"', '["sh", "-c", "make test"]'),
        ({}, "argv is missing", "a list of words"),
        ({"argv": ["a", 1]}, "an item of argv cannot be 1", "it is text"),
        ({"argv": ["a"], "timeout": 3}, "there is no field 'timeout'", "a field of the manifest"),
        ({"argv": ["a"], "stream": "yes"}, 'stream cannot be "yes"', "true or false"),
    ],
)
def test_params_of_a_request(params: dict[str, Any], message: str, remedy: str) -> None:
    with pytest.raises(InvalidParams) as refused:
        convert(params, ExecuteParams)
    assert refused.value.message == message
    assert remedy in (refused.value.remedy or "")


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)
_FIELDS = st.sampled_from(["timeout", "network", "env", "fs_deny", "max_cpus", "tmp_bytes", "x"])


@settings(database=None, max_examples=200)
@given(st.dictionaries(_FIELDS, _JSON))
def test_no_value_shows_the_decoders_own_words(manifest: dict[str, Any]) -> None:
    try:
        manifest_from(manifest)
    except ManifestInvalid as error:
        assert "Expected `" not in error.message  # noqa: PT017
        assert "Invalid enum" not in error.message  # noqa: PT017


@pytest.mark.parametrize(
    ("value", "text"),
    [(104857600, "100M"), (1 << 30, "1G"), (3 << 29, "1.5G"), (65536, "64K"), (1000, "1000")],
)
def test_sizes_are_shown_with_a_unit(value: int, text: str) -> None:
    assert shown_bytes(value) == text
    assert bytes_in(text) == value


@pytest.mark.parametrize(
    ("value", "text"), [(2.0, "2s"), (1.5, "1.5s"), (300, "5m"), (7200, "2h"), (0.5, "500ms")]
)
def test_times_are_shown_with_a_unit(value: float, text: str) -> None:
    assert shown_seconds(value) == text
    assert seconds_in(text) == value


@settings(database=None)
@given(st.integers(1, 1 << 55))
def test_a_shown_size_is_within_a_thousandth(value: int) -> None:
    read = bytes_in(shown_bytes(value))
    assert read is not None
    assert abs(read - value) <= value / 1000 + 1


LONG = "1" * 10_000


@pytest.mark.parametrize(
    "params",
    [
        {LONG: 1},
        {"manifest": {LONG: 1}},
        {"manifest": {"timeout": LONG}},
        {"manifest": {"max_memory_bytes": f"{LONG}M"}},
        {"manifest": {"max_processes": LONG}},
        {"preset": LONG},
        {"argv": LONG},
    ],
)
def test_a_long_text_is_cut_in_errors_and_not_compared(
    params: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message can have megabytes of it, and the event loop makes the error."""
    compared: list[str] = []

    def compare(word: str, *known: Any, **more: Any) -> list[str]:
        compared.append(word)
        return []

    monkeypatch.setattr("sandboxd_proto.wording.get_close_matches", compare)

    def check() -> None:
        presets.preset(convert({"argv": ["a"], **params}, ExecuteParams).preset)

    with pytest.raises((InvalidParams, ManifestInvalid)) as met:
        check()
    told = met.value
    assert len(f"{told.message} {told.field} {told.remedy}") < 1000
    assert all(len(word) <= 64 for word in compared)


def test_a_token_that_is_no_text_is_not_shown() -> None:
    with pytest.raises(InvalidParams) as refused:
        convert({"session": "se-1", "token": 1234567}, SessionAttachParams)
    assert (refused.value.message, refused.value.field) == ("token is text", "token")
