"""Which remedies the daemon's config would refuse: the next request with them would fail."""

from __future__ import annotations

from collections.abc import Iterator

from sandboxd.config.config import Ceiling
from sandboxd.denials.context import Setting
from sandboxd.platform.current import files
from sandboxd.policy.data import system_dirs
from sandboxd.policy.network.host_rules import HostInvalid, HostRule, parse_rule
from sandboxd.policy.paths.within import within_any
from sandboxd.policy.plan import Access

# Where a limit is not called like its ceiling. /tmp and /dev/shm are in memory.
_KEYS = {
    "timeout": "max_timeout_secs",
    "tmp_bytes": "max_memory_bytes",
    "shm_bytes": "max_memory_bytes",
}


def in_roots(setting: Setting, path: str, access: Access) -> bool:
    roots = setting.ceiling.roots if setting.ceiling is not None else None
    if roots is None:
        return True
    allowed = [setting.host.canonical(files.expanduser(root)) for root in roots]
    more = system_dirs.READABLE if access == "read" else ()
    return within_any(path, (*allowed, *more))


def network_permitted(setting: Setting, value: object) -> bool:
    kind = value if isinstance(value, str) else "allow_hosts"
    ceiling = setting.ceiling
    if ceiling is not None and ceiling.network is not None and kind not in ceiling.network:
        return False
    return all(_host_permitted(ceiling, entry) for entry in _hosts(value))


def network_nameable(value: object) -> bool:
    """Whether a manifest can name all of its hosts."""
    return all(_rule(entry) is not None for entry in _hosts(value))


def _hosts(value: object) -> list[str]:
    return list(value.get("hosts", ())) if isinstance(value, dict) else []


def _rule(entry: str) -> HostRule | None:
    try:
        return parse_rule(entry)
    except HostInvalid:
        return None


def _host_permitted(ceiling: Ceiling | None, entry: str) -> bool:
    rule = _rule(entry)
    if rule is None:
        return False
    if ceiling is None or ceiling.hosts is None:
        return True
    return any(parse_rule(one).includes(rule) for one in ceiling.hosts)


def limit_permitted(ceiling: Ceiling | None, field: str, value: object) -> bool:
    most, asked = highest(ceiling, field), next(_numbers(value), None)
    return most is None or asked is None or asked <= most


def highest(ceiling: Ceiling | None, field: str) -> float | None:
    """The most that a request may name for a limit."""
    key = _KEYS.get(field, field)
    most: float | None = getattr(ceiling, key, None) if ceiling is not None else None
    return most


def _numbers(value: object) -> Iterator[float]:
    if isinstance(value, dict):
        value = value.get("secs")
    if isinstance(value, int | float):
        yield value
