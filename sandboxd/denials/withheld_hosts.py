"""Networks that no remedy proposes: more than one host, the machine's credentials, what the config
does not permit."""

from __future__ import annotations

from sandboxd.denials import beyond_ceiling
from sandboxd.denials.context import Setting
from sandboxd.policy.data import metadata_services
from sandboxd.policy.network.embedded_ipv4 import embedded_ipv4
from sandboxd.policy.network.host_rules import HostRule, parse_rule


def network_refusal(setting: Setting, value: object) -> str | None:
    """Why this value of `network` must not be proposed; None when it can be. What the plan allows
    already, also by the name of a group, is not judged."""
    if isinstance(value, dict):
        given = setting.plan.sandbox.network
        known = {*given.hosts, *given.named}
        value = {**value, "hosts": [one for one in value.get("hosts", ()) if one not in known]}
    if not beyond_ceiling.network_nameable(value):
        return "it is no host that a manifest can name"
    if not beyond_ceiling.network_permitted(setting, value):
        return "the daemon's config does not permit it ([ceiling] network and hosts)"
    new = [parse_rule(host) for host in value["hosts"]] if isinstance(value, dict) else []
    if any(rule.wildcard for rule in new):
        return "it stands for more hosts than one"
    if any(map(_is_metadata_service, new)):
        return "it hands out the machine's credentials"
    return None


def _is_metadata_service(rule: HostRule) -> bool:
    if rule.address is None:
        return any(map(rule.covers, metadata_services.NAMES))
    spelled = (rule.address, embedded_ipv4(rule.address))
    return any(
        one.is_link_local or one in metadata_services.ADDRESSES
        for one in spelled if one is not None
    )  # fmt: skip
