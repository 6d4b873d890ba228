"""The environment variables that name the proxy, in both spellings: programs differ."""

from __future__ import annotations

from collections.abc import Iterable

from sandboxd.egress.address_book import PROXY
from sandboxd.policy.network.host_rules import HostRule

PORT = 808  # below 1024: no program in the sandbox can bind it
USER = "sandboxd"


def variables(rules: Iterable[HostRule], secret: str) -> tuple[tuple[str, str], ...]:
    """For a sandbox with a network of its own."""
    where = f"{USER}:{secret}@{PROXY}:{PORT}"
    # Exact hosts with ports of their own need no proxy; the sandbox's own servers must not use it.
    rules = tuple(rules)
    ranged = {rule.name for rule in rules if rule.has_range}
    direct = [r.name for r in rules if not r.wildcard and r.name not in ranged]
    return _spelled(where, direct)


def host_variables(secret: str, port: int) -> tuple[tuple[str, str], ...]:
    """For a sandbox in the host's network, whose only way out is the proxy at this port."""
    return _spelled(f"{USER}:{secret}@127.0.0.1:{port}", [])


def _spelled(where: str, direct: list[str]) -> tuple[tuple[str, str], ...]:
    values = {
        "http_proxy": f"http://{where}",
        "https_proxy": f"http://{where}",
        "all_proxy": f"socks5h://{where}",
        "no_proxy": ",".join(dict.fromkeys(["localhost", "127.0.0.1", "::1", *direct])),
    }
    return tuple(
        (spelling, value) for name, value in values.items() for spelling in (name, name.upper())
    )
