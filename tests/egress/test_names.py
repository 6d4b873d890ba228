"""Entries of a manifest and names from outside: one host has one spelling."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxd.config.config import Config, ConfigError, Egress
from sandboxd.policy.network.host_rules import HostInvalid, normal_name, parse_rule
from sandboxd.policy.network.rules import check_config, network_rule
from sandboxd.policy.presets import NO_PRESET
from sandboxd_proto.errors import ManifestInvalid
from sandboxd_proto.manifest import Manifest, Network


@pytest.mark.parametrize(
    ("entry", "normal"),
    [
        ("Example.ORG.", "example.org"),
        ("bücher.example:8443", "xn--bcher-kva.example:8443"),
        ("ｅｘａｍｐｌｅ。org", "example.org"),
        ("*.Example.org", "*.example.org"),
        ("example.org:8000-8100", "example.org:8000-8100"),
        ("[2001:DB8::7]:443", "[2001:db8::7]:443"),
        ("2001:db8:0::7", "2001:db8::7"),
        ("192.0.2.7:5432", "192.0.2.7:5432"),
        ("_dmarc.example.org", "_dmarc.example.org"),
    ],
)
def test_every_spelling_has_one_normal_form(entry: str, normal: str) -> None:
    rule = parse_rule(entry)
    assert rule.text == normal
    assert parse_rule(rule.text) == rule


@pytest.mark.parametrize(
    "entry",
    ["", ".", "a..b", "-a.org", "a b", "http://example.org", "user@example.org", "*", "*.org",
     "a.*.org", "*a.org", "127.1", "0x7f.0.0.1", "2130706433", "example.org:0", "example.org:65536",
     "example.org:9-8", "example.org:x", "fe80::1%eth0", "[::1", "[::1]x", "a\0b", "a\nb",
     "x" * 64 + ".org", ("x" * 60 + ".") * 5 + "org", "xn--\ud800.org"],
)  # fmt: skip
def test_what_is_no_host_is_refused(entry: str) -> None:
    with pytest.raises(HostInvalid):
        parse_rule(entry)


@given(st.text(max_size=80))
def test_a_normal_name_stays_itself(text: str) -> None:
    try:
        name = normal_name(text)
    except HostInvalid:
        return
    assert normal_name(name) == name
    assert name.isascii()


def test_a_wildcard_covers_names_below_it_only() -> None:
    rule = parse_rule("*.example.org")
    assert rule.covers("a.example.org")
    assert rule.covers("a.b.example.org")
    assert not rule.covers("example.org")
    assert not rule.covers("badexample.org")


@pytest.mark.parametrize(
    ("outer", "inner", "included"),
    [
        ("example.org", "example.org", True),
        ("example.org", "example.org:443", True),
        ("example.org:443", "example.org", False),
        ("*.example.org", "a.example.org", True),
        ("*.example.org", "*.a.example.org", True),
        ("*.example.org", "example.org", False),
        ("*.a.example.org", "*.example.org", False),
        ("example.org:1-100", "example.org:50-60", True),
        ("example.org:1-100", "example.org:50-101", False),
    ],
)
def test_a_ceiling_includes_what_is_narrower(outer: str, inner: str, included: bool) -> None:
    assert parse_rule(outer).includes(parse_rule(inner)) is included


def _rule(*hosts: str, egress: Egress | None = None) -> tuple[str, ...]:
    manifest = Manifest(network=Network(kind="allow_hosts", hosts=list(hosts)))
    return network_rule(manifest, NO_PRESET, Config(egress=egress or Egress())).hosts


def test_groups_expand_and_unknown_ones_are_named() -> None:
    egress = Egress(groups={"mirrors": ["one.example.org", "two.example.org:8443"]})
    assert _rule("group:mirrors", egress=egress) == ("one.example.org", "two.example.org:8443")
    with pytest.raises(ManifestInvalid, match="no group 'others'"):
        _rule("group:others", egress=egress)


def test_the_field_of_a_bad_entry_is_named() -> None:
    with pytest.raises(ManifestInvalid) as caught:
        _rule("example.org", "127.1")
    assert caught.value.field == "network.hosts[1]"
    with pytest.raises(ManifestInvalid, match="names no host"):
        _rule()


@pytest.mark.parametrize(
    "egress",
    [
        Egress(groups={"a": ["*.example.org"]}),
        Egress(groups={"a": ["group:b"], "b": ["example.org"]}),
        Egress(allow=["http://example.org"]),
        Egress(allow=["workers.dev"]),
        Egress(private_networks=["10.0.0.0/33"]),
    ],
)
def test_a_config_that_no_request_could_use_does_not_start(egress: Egress) -> None:
    with pytest.raises(ConfigError, match=r"^egress\."):
        check_config(Config(egress=egress))
