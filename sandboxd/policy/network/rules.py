"""The network of a plan: what the manifest, the preset and the config say together.

Hosts are checked and brought to their normal form here, before anything runs, so that a plan holds
each entry in one spelling and the gate never meets one that it cannot read.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable
from functools import partial

from sandboxd.config.config import Config, ConfigError, Egress
from sandboxd.policy.data import shared_platforms
from sandboxd.policy.network.host_rules import HostInvalid, HostRule, parse_rule
from sandboxd.policy.plan import NetworkRule
from sandboxd.policy.presets import Preset
from sandboxd_proto.errors import ManifestInvalid
from sandboxd_proto.manifest import Manifest, Network

GROUP = "group:"
MAX_HOSTS = 1024
_EXAMPLES = 'for example "example.org", "example.org:8443", "*.example.org" or "192.0.2.7:5432"'


def network_rule(manifest: Manifest, base: Preset, config: Config) -> NetworkRule:
    given = manifest.network
    if given is None:
        permitted = config.ceiling.network
        kind = base.network
        # The default was not requested: under a ceiling it narrows instead of failing.
        return NetworkRule("deny" if permitted is not None and kind not in permitted else kind)
    if isinstance(given, str):
        return NetworkRule(given)
    if given.kind != "allow_hosts":
        if given.hosts:
            raise ManifestInvalid(
                f'hosts have no meaning with kind "{given.kind}"', field="network.hosts",
                remedy='use kind "allow_hosts"',
            )  # fmt: skip
        return NetworkRule(given.kind)
    return NetworkRule("allow_hosts", _hosts(given, config.egress), tuple(given.hosts))


def _hosts(given: Network, egress: Egress) -> tuple[str, ...]:
    """The manifest's hosts, then those that the config allows every such sandbox."""
    if not given.hosts and not egress.allow:
        raise ManifestInvalid(
            "allow_hosts names no host", field="network.hosts",
            remedy='give hosts, for example ["example.org"], or kind "deny"',
        )  # fmt: skip
    if len(given.hosts) > MAX_HOSTS:  # before each of them is looked at
        raise _too_many(len(given.hosts))
    rules: list[HostRule] = []
    for index, entry in enumerate(given.hosts):
        rules += _entry(entry, egress, partial(_invalid, f"network.hosts[{index}]"))
    rules += configured_rules(egress.allow, egress)
    hosts = tuple(dict.fromkeys(rule.text for rule in rules))
    if len(hosts) > MAX_HOSTS:
        raise _too_many(len(hosts))
    return hosts


def _too_many(count: int) -> ManifestInvalid:
    return ManifestInvalid(
        f"{count} hosts are more than the {MAX_HOSTS} that a sandbox can have",
        field="network.hosts", remedy="use a wildcard, or fewer hosts",
    )  # fmt: skip


def _entry(entry: str, egress: Egress, fail: Callable[[str], Exception]) -> list[HostRule]:
    if entry.startswith(GROUP):
        name = entry.removeprefix(GROUP)
        if name not in egress.groups:
            known = ", ".join(sorted(egress.groups)) or "none"
            raise fail(f"the config has no group {name!r} ([egress.groups] has: {known})")
        return configured_rules(egress.groups[name], egress)
    try:
        rule = parse_rule(entry)
    except HostInvalid as error:
        raise fail(f"{entry[:80]!r} cannot be allowed: {error}") from None
    if egress.exfil_rules:
        _refuse_shared(rule, fail)
    return [rule]


def _refuse_shared(rule: HostRule, fail: Callable[[str], Exception]) -> None:
    if not rule.wildcard and not shared_platforms.is_tenant_suffix(rule.name):
        return
    category = shared_platforms.platform_of(rule.name)
    if category is not None:
        raise fail(
            f"{rule.text} belongs to a shared platform ({category}): "
            "it can be allowed only by exact host"
        )


def _invalid(field: str, why: str) -> ManifestInvalid:
    return ManifestInvalid(why, field=field, remedy=f"name the host exactly, {_EXAMPLES}")


def configured_rules(entries: Iterable[str], egress: Egress) -> list[HostRule]:
    """Entries of the config, which were checked when the daemon started."""
    return [rule for entry in entries for rule in _entry(entry, egress, ConfigError)]


def _check_member(entry: str, egress: Egress, where: str) -> None:
    if entry.startswith(GROUP):
        raise _bad_key(where, f"{entry!r} is a group; a group holds hosts only")
    if any(rule.wildcard for rule in _entry(entry, egress, partial(_bad_key, where))):
        raise _bad_key(where, f"{entry!r} is a wildcard; a group holds exact hosts")


def _bad_key(key: str, why: str) -> ConfigError:
    return ConfigError(f"{key}: {why}", key=key)


def check_config(config: Config) -> None:
    """ConfigError naming the key, for entries that no request could use."""
    egress = config.egress
    for name, entries in egress.groups.items():
        for entry in entries:
            _check_member(entry, egress, f"egress.groups.{name}")
    for entry in egress.allow:
        _entry(entry, egress, partial(_bad_key, "egress.allow"))
    for entry in config.ceiling.hosts or ():
        try:
            parse_rule(entry)
        except HostInvalid as error:
            raise _bad_key("ceiling.hosts", f"{entry!r} is no host: {error}") from None
    for network in egress.private_networks:
        try:
            ipaddress.ip_network(network)
        except ValueError as error:
            raise _bad_key("egress.private_networks", str(error)) from None
