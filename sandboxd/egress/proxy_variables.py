"""The variables that tell programs of the proxy, in both spellings: each is read by some."""

from __future__ import annotations

from collections.abc import Iterable

from sandboxd.egress.book import PROXY
from sandboxd.policy.hosts import HostRule

PORT = 808  # below 1024: no program in the sandbox can take its place
USER = "sandboxd"


def variables(rules: Iterable[HostRule], secret: str) -> tuple[tuple[str, str], ...]:
    where = f"{USER}:{secret}@{PROXY}:{PORT}"
    # Exact hosts with ports of their own need no proxy; the sandbox's own servers must not use it.
    rules = tuple(rules)
    ranged = {rule.name for rule in rules if rule.has_range}
    direct = [r.name for r in rules if not r.wildcard and r.name not in ranged]
    values = {
        "http_proxy": f"http://{where}",
        "https_proxy": f"http://{where}",
        "all_proxy": f"socks5h://{where}",
        "no_proxy": ",".join(dict.fromkeys(["localhost", "127.0.0.1", "::1", *direct])),
    }
    return tuple(
        (spelling, value) for name, value in values.items() for spelling in (name, name.upper())
    )
