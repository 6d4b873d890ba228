"""Accept what people write in a manifest or config: "30s", "256M", one path, hosts.

Used only after strict decoding has failed, so the usual request pays nothing. A value that cannot
be converted stays as it is, and the strict error is reported.
"""

from __future__ import annotations

from typing import Any

from sandboxd_proto.amounts import bytes_in, seconds_in

_LISTS = ("fs_read_allow", "fs_write_allow", "fs_deny")
_LONGEST_COUNT, _LONGEST_AMOUNT = 18, 64
_COUNTS = ("max_processes", "max_cpus")
_NO_NETWORK = ("none", "off", "no", "disabled", "deny")
_ALL_NETWORK = ("all", "inherit", "host")


def understood(manifest: Any) -> Any:
    """The manifest with every value in the form that the structs take."""
    if not isinstance(manifest, dict):
        return manifest
    return {name: _field(name, value) for name, value in manifest.items()}


def understood_amounts(table: Any) -> Any:
    """A table of the config: only amounts, told by the keys' endings."""
    if not isinstance(table, dict):
        return table
    return {
        name: understood_amounts(value) if isinstance(value, dict) else _amount(name, value)
        for name, value in table.items()
    }


def _field(name: str, value: Any) -> Any:
    if name in _LISTS and isinstance(value, str):
        return [value]
    if name == "network":
        return _network(value)
    if name in _COUNTS and isinstance(value, str) and _is_count(value):
        return int(value)
    return _amount(name, value)


def _is_count(text: str) -> bool:
    return len(text) <= _LONGEST_COUNT and text.isascii() and text.isdigit()


def _amount(name: str, value: Any) -> Any:
    if not isinstance(value, str):
        if name.endswith("_bytes") and isinstance(value, float) and value.is_integer():
            return int(value)
        return value
    if len(value) > _LONGEST_AMOUNT:
        return value
    if name == "timeout" and value == "longest":
        return value
    if name == "timeout" and value.strip().lower() in ("none", "never", "off"):
        return "none"
    if name == "timeout" or name.endswith("_secs"):
        found: float | None = seconds_in(value)
    elif name.endswith("_bytes"):
        found = bytes_in(value)
    else:
        return value
    return value if found is None else found


def _network(value: Any) -> Any:
    if value is False:
        return "deny"
    if isinstance(value, str):
        word = value.strip().lower()
        return "deny" if word in _NO_NETWORK else "inherit" if word in _ALL_NETWORK else value
    if isinstance(value, list) and all(isinstance(host, str) for host in value):
        return {"kind": "allow_hosts", "hosts": value}
    return value
