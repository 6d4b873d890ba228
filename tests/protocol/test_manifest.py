"""The manifest in its two forms: JSON as it is, and a TOML file's [sandbox] table."""

from __future__ import annotations

from typing import Any

import pytest

from sandboxd_proto.errors import ManifestInvalid
from sandboxd_proto.manifest import (
    FIELDS,
    Duration,
    Manifest,
    Network,
    manifest_from,
    manifest_from_toml,
    manifest_to_dict,
)

# The fields of the design; a renamed one breaks every caller.
DESIGNED = {
    "fs_read_allow", "fs_write_allow", "fs_deny", "base", "network", "syscall_policy", "timeout",
    "max_memory_bytes", "max_cpu_secs", "max_processes", "max_file_bytes", "max_output_bytes",
    "env", "image",
}  # fmt: skip


def test_no_designed_field_is_missing() -> None:
    assert set(FIELDS) >= DESIGNED


def test_an_empty_manifest_says_nothing() -> None:
    assert manifest_from({}) == Manifest()
    assert manifest_to_dict(Manifest()) == {}
    assert manifest_from_toml("[sandbox]\n") == Manifest()


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"secs": 5}, Duration(secs=5)),
        ({"secs": 5, "nanos": 500}, Duration(secs=5, nanos=500)),
        (5, 5.0),
        (2.5, 2.5),
        ("none", "none"),
        (None, None),
    ],
)
def test_timeout_forms(value: Any, expected: Any) -> None:
    assert manifest_from({"timeout": value}).timeout == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("timeout = 5", 5.0),
        ("timeout = 2.5", 2.5),
        ('timeout = "none"', "none"),
        ("timeout = { secs = 5 }", Duration(secs=5)),
        ("timeout = { secs = 5, nanos = 7 }", Duration(secs=5, nanos=7)),
        ("[sandbox.timeout]\nsecs = 5\nnanos = 7", Duration(secs=5, nanos=7)),
    ],
)
def test_timeout_forms_in_toml(line: str, expected: Any) -> None:
    assert manifest_from_toml(f"[sandbox]\n{line}\n").timeout == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("deny", "deny"),
        ("inherit", "inherit"),
        ({"kind": "deny"}, Network(kind="deny")),
        (
            {"kind": "allow_hosts", "hosts": ["index.example.org:443"]},
            Network(kind="allow_hosts", hosts=["index.example.org:443"]),
        ),
    ],
)
def test_network_forms(value: Any, expected: Any) -> None:
    assert manifest_from({"network": value}).network == expected


def test_env_is_pairs_and_keeps_their_order_and_repeats() -> None:
    pairs = [["A", "1"], ["B", "2"], ["A", "3"]]
    assert manifest_from({"env": pairs}).env == [("A", "1"), ("B", "2"), ("A", "3")]


def test_toml_and_json_say_the_same() -> None:
    toml = """
        [tool]
        name = "a builder"
        [sandbox]
        fs_read_allow = ["/srv/data"]
        fs_write_allow = ["/srv/out"]
        base = "host"
        syscall_policy = "strict"
        max_memory_bytes = 268435456
        env = [["LANG", "C"]]
        [sandbox.network]
        kind = "allow_hosts"
        hosts = ["example.org"]
    """
    json = {
        "fs_read_allow": ["/srv/data"],
        "fs_write_allow": ["/srv/out"],
        "base": "host",
        "syscall_policy": "strict",
        "max_memory_bytes": 268435456,
        "env": [["LANG", "C"]],
        "network": {"kind": "allow_hosts", "hosts": ["example.org"]},
    }
    assert manifest_from_toml(toml) == manifest_from(json)


def test_what_is_sent_on_is_read_back_the_same() -> None:
    manifest = manifest_from(
        {"timeout": {"secs": 1, "nanos": 2}, "network": "deny", "env": [["A", "1"]]}
    )
    assert manifest_from(manifest_to_dict(manifest)) == manifest


@pytest.mark.parametrize(
    ("value", "field"),
    [
        ({"fs_reed_allow": []}, "fs_reed_allow"),
        ({"fs_read_allow": 1}, "fs_read_allow"),
        ({"fs_read_allow": ["/", 1]}, "fs_read_allow[1]"),
        ({"base": "everything"}, "base"),
        ({"syscall_policy": "lax"}, "syscall_policy"),
        ({"network": "allow"}, "network"),
        ({"network": {"kind": "deny", "host": []}}, "network.host"),
        ({"timeout": "soon"}, "timeout"),
        ({"timeout": {"seconds": 5}}, "timeout.seconds"),
        ({"timeout": {"secs": 1.5}}, "timeout.secs"),
        ({"timeout": True}, "timeout"),
        ({"timeout": []}, "timeout"),
        ({"max_memory_bytes": "lots"}, "max_memory_bytes"),
        ({"max_memory_bytes": 1.5}, "max_memory_bytes"),
        ({"max_processes": True}, "max_processes"),
        ({"env": [["A"]]}, "env[0]"),
        ({"env": [["A", "1", "2"]]}, "env[0]"),
        ({"env": {"A": []}}, "env[...]"),
        ({"env": "A=1"}, "env"),
    ],
)
def test_a_wrong_manifest_names_its_field(value: Any, field: str) -> None:
    with pytest.raises(ManifestInvalid) as caught:
        manifest_from(value)
    assert caught.value.field == field
    assert caught.value.data()["kind"] == "ManifestInvalid"


@pytest.mark.parametrize(
    "text", ["", "sandbox = 1", "[sandbx]\n", "[sandbox", 'a = "', "[[sandbox]]\n"]
)
def test_toml_without_a_sandbox_table_is_refused(text: str) -> None:
    with pytest.raises(ManifestInvalid):
        manifest_from_toml(text)


def test_a_toml_date_is_no_timeout() -> None:
    with pytest.raises(ManifestInvalid) as caught:
        manifest_from_toml("[sandbox]\ntimeout = 2020-01-01\n")
    assert caught.value.field == "timeout"
