"""Times, sizes and counts of flags: 30s, 5m, 256M, 20."""

from __future__ import annotations

from sandboxd_client.cli.parse import UsageError
from sandboxd_proto.amounts import bytes_in, seconds_in

# Fewer bytes without a unit are a forgotten unit: no program runs in 50 bytes.
_LEAST_PLAIN_BYTES = 1 << 16


def seconds(text: str, flag: str) -> float:
    found = seconds_in(text)
    if found is None:
        raise UsageError(f"{flag} cannot be {text!r}", "write a time like 500ms, 30s, 5m or 1h")
    return found


def size_bytes(text: str, flag: str) -> int:
    found = bytes_in(text)
    if found is None:
        raise UsageError(f"{flag} cannot be {text!r}", "write a size like 64M, 256M or 2G")
    if found < _LEAST_PLAIN_BYTES and text.isdigit():
        raise UsageError(f"{flag} {text} would be {text} bytes", f"write {flag} {text}M")
    return found


def count(text: str, flag: str) -> int:
    if not (text.isascii() and text.isdigit()) or int(text) < 1:
        raise UsageError(f"{flag} cannot be {text!r}", "write a number above 0")
    return int(text)
