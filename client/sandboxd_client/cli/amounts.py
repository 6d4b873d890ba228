"""Times and sizes as people write them: 30s, 5m, 256M."""

from __future__ import annotations

from sandboxd_client.cli.parse import UsageError

_TIME_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "": 1.0}
_SIZE_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def seconds(text: str, flag: str) -> float:
    number, unit = _split(text)
    if number is None or unit.lower() not in _TIME_UNITS:
        raise UsageError(f"{flag} cannot be {text!r}", "write a time like 500ms, 30s, 5m or 1h")
    return _positive(number * _TIME_UNITS[unit.lower()], text, flag)


def size_bytes(text: str, flag: str) -> int:
    number, unit = _split(text)
    prefix = unit.upper().removesuffix("B").removesuffix("I")
    if number is None or prefix not in _SIZE_UNITS:
        raise UsageError(f"{flag} cannot be {text!r}", "write a size like 512K, 256M or 2G")
    return int(_positive(number * _SIZE_UNITS[prefix], text, flag))


def count(text: str, flag: str) -> int:
    if not (text.isascii() and text.isdigit()) or int(text) < 1:
        raise UsageError(f"{flag} cannot be {text!r}", "write a number above 0")
    return int(text)


def _split(text: str) -> tuple[float | None, str]:
    digits = text.rstrip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
    if not digits or digits.strip("0123456789.") or not digits.isascii():
        return None, ""
    try:
        return float(digits), text[len(digits) :]
    except ValueError:
        return None, ""


def _positive(value: float, text: str, flag: str) -> float:
    if not 0 < value < 1e18:
        raise UsageError(f"{flag} cannot be {text!r}", "it must be above 0")
    return value
