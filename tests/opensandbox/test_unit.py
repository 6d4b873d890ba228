"""The parts that are functions: the event parser, the body of a request, what is refused."""

from __future__ import annotations

import io
import os
import tarfile
import tempfile
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from sandboxd.backends.opensandbox.copies.tar_reader import ArchiveViolation, TarMember, members
from sandboxd.backends.opensandbox.enforcement import tiers
from sandboxd.backends.opensandbox.events import EventParser, ExecdEvent, StreamViolation
from sandboxd.backends.opensandbox.http_client import HttpClient, origin
from sandboxd.backends.opensandbox.key import load_key
from sandboxd.backends.opensandbox.spec import create_body, is_plain_host
from sandboxd.backends.opensandbox.volume_checks import are_unchanged
from sandboxd.config.config import OpenSandboxConfig
from sandboxd.policy.plan import (
    Grant,
    Identity,
    Limits,
    Mask,
    NetworkRule,
    Plan,
    Protected,
    SandboxSpec,
)
from sandboxd_proto.errors import PolicyNotSupported, SandboxUnavailable
from sandboxd_proto.secret import Secret

FOLDER = Identity(1, 2, is_dir=True)
SPEC = SandboxSpec(
    base="minimal", network=NetworkRule("inherit"), grants=(Grant("/srv/w", "write", FOLDER),)
)
STREAM = (
    b'{"type": "init", "text": "c"}\n\ndata: {"type": "stdout", "text": "a"}\n\n: note\n'
    b'event: x\n{"type":"error","error":{"evalue":"7"}}\n\n'
)
EVENTS = [ExecdEvent("init", "c"), ExecdEvent("stdout", "a"), ExecdEvent("error", "7")]


@given(st.lists(st.integers(0, len(STREAM)), max_size=6))
def test_events_come_whole_however_the_stream_is_cut(cuts: list[int]) -> None:
    parser, at, found = EventParser(), 0, []
    for cut in [*sorted(cuts), len(STREAM)]:
        found += parser.feed(STREAM[at:cut])
        at = cut
    assert [*found, *parser.rest()] == EVENTS


@given(st.binary(max_size=200))
def test_any_bytes_are_events_or_a_violation(data: bytes) -> None:
    parser = EventParser()
    try:
        found = [*parser.feed(data), *parser.rest()]
    except StreamViolation:
        return
    assert all(isinstance(event, ExecdEvent) for event in found)


def archive(*names: str) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for name in names:
            info = tarfile.TarInfo(name)
            info.size = 3
            tar.addfile(info, io.BytesIO(b"abc"))
    return out.getvalue()


def read(data: bytes) -> list[TarMember]:
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.flush()
        return list(members(file, 10))


LONG = archive("a", "b" * 300, "c/d")


def test_names_of_an_archive_are_read() -> None:
    assert [(one.name, one.size) for one in read(LONG)] == [("a", 3), ("b" * 300, 3), ("c/d", 3)]
    pax = io.BytesIO()
    with tarfile.open(fileobj=pax, mode="w", format=tarfile.PAX_FORMAT) as tar:
        tar.addfile(tarfile.TarInfo("ü" * 200))
    assert [one.name for one in read(pax.getvalue())] == ["ü" * 200]


@given(st.integers(0, len(LONG) - 1), st.binary(min_size=1, max_size=40))
def test_a_changed_archive_is_read_or_a_violation(at: int, planted: bytes) -> None:
    with suppress(ArchiveViolation):
        assert all(len(one.name) <= 4096 for one in read(LONG[:at] + planted + LONG[at + 1 :]))


@given(st.integers(0, len(LONG) - 1))
def test_a_cut_archive_is_a_violation_unless_only_padding_is_missing(length: int) -> None:
    if length >= len(LONG.rstrip(b"\0")) + 1536:
        return
    with suppress(ArchiveViolation):
        assert len(read(LONG[:length])) == 3


def plan(spec: SandboxSpec, limits: Limits | None = None) -> Plan:
    return Plan(
        sandbox=spec, syscall_policy="inherit", timeout_s=None, limits=limits or Limits(),
        env=(), cwd="/",
    )  # fmt: skip


def test_volumes_of_granted_folders() -> None:
    inner = Protected("/srv/w/.hooks", "/srv/w", present=True, is_dir=True)
    body = create_body(replace(SPEC, protected=(inner,)), "i", {})
    mounted = [(one["mountPath"], one["readOnly"]) for one in body["volumes"]]
    assert mounted == [("/srv/w", False), ("/srv/w/.hooks", True)]
    assert tiers(plan(SPEC), host_volumes=True, with_init=False) == {}


@pytest.mark.parametrize(
    ("field", "spec"),
    [
        ("fs_deny", replace(SPEC, masks=(Mask("/srv/w/secret", is_dir=False),))),
        ("fs_write_allow", replace(SPEC, protected=(Protected("/srv/w/f", "/srv/w", True),))),
        (
            "fs_read_allow",
            replace(SPEC, grants=(Grant("/srv/f", "read", Identity(1, 3, is_dir=False)),)),
        ),
    ],
)
def test_what_a_volume_cannot_hold_is_refused(field: str, spec: SandboxSpec) -> None:
    with pytest.raises(PolicyNotSupported) as refused:
        tiers(plan(spec), host_volumes=True, with_init=False)
    assert refused.value.field == field


def test_a_limit_of_the_ceiling_is_refused_too() -> None:
    """Nobody asked for it in the manifest, and it is to hold all the same."""
    with pytest.raises(PolicyNotSupported):
        tiers(
            plan(replace(SPEC, grants=()), Limits(processes=5)), host_volumes=False, with_init=False
        )


def test_a_folder_that_is_another_one_is_noticed(tmp_path: os.PathLike[str]) -> None:
    path = os.fspath(tmp_path)
    same = replace(SPEC, grants=(Grant(path, "read", Identity.of(os.stat(path))),))
    assert are_unchanged(same)
    assert not are_unchanged(replace(SPEC, grants=(Grant(path, "read", FOLDER),)))


@pytest.mark.parametrize("host", ["example.org", "*.example.org", "localhost"])
def test_plain_hosts(host: str) -> None:
    assert is_plain_host(host)


@pytest.mark.parametrize("host", ["192.0.2.7", "example.org:22", "::1", "10.0.0.0/8", "*", "a..b"])
def test_other_hosts(host: str) -> None:
    assert not is_plain_host(host)


@pytest.mark.parametrize(
    ("url", "has_key"),
    [
        ("https://h/v1/x", True),
        ("https://h:443/proxy", True),
        ("http://h/v1", False),
        ("https://h:444/v1", False),
        ("https://h.evil/v1", False),
    ],
)
def test_the_key_goes_to_its_origin_only(url: str, has_key: bool) -> None:
    headers = HttpClient("https://h").headers_for(url, Secret("k"))
    assert bool(headers) == has_key


@pytest.mark.parametrize("url", ["ftp://h", "https://user@h", "https://", "h:80", "https://h:x"])
def test_urls_that_are_none(url: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        origin(url)


def test_a_key_is_never_shown() -> None:
    config = OpenSandboxConfig(url="https://h", api_key="hidden-key")
    key = load_key(config)
    assert key.reveal() == "hidden-key"
    assert "hidden-key" not in f"{key} {key!r} {config!r} {[config]}"


@pytest.mark.parametrize("key", ["a\nb", "ключ", "a\x00b"])
def test_keys_that_no_header_can_have(key: str) -> None:
    with pytest.raises(SandboxUnavailable):
        load_key(OpenSandboxConfig(url="https://h", api_key=key))
