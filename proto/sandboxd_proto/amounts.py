"""Times and sizes as people write them (30s, 5m, 256M), and as they are shown to people.

This module imports nothing: `sandboxctl run` reads and prints amounts too.
"""

from __future__ import annotations

_TIME_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "": 1.0}
_LONG_TIME_UNITS = {
    "sec": 1.0, "secs": 1.0, "second": 1.0, "seconds": 1.0, "min": 60.0, "mins": 60.0,
    "minute": 60.0, "minutes": 60.0, "hour": 3600.0, "hours": 3600.0, "day": 86400.0,
    "days": 86400.0,
}  # fmt: skip
_SIZE_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_MOST = 1e18


def seconds_in(text: str) -> float | None:
    """The seconds of "500ms", "30s", "1.5h" or "1h30m"; None if it is not a time above 0."""
    parts = _parts(text.strip())
    value = 0.0
    for part in parts:
        number, unit = _split(part)
        factor = _TIME_UNITS.get(unit.lower(), _LONG_TIME_UNITS.get(unit.lower()))
        if number is None or factor is None or (len(parts) > 1 and not unit):
            return None
        value += number * factor
    return value if 0 < value < _MOST else None


def _parts(text: str) -> list[str]:
    """Split after each unit: a digit that follows a letter begins the next part."""
    starts = [0]
    for index in range(1, len(text)):
        if text[index].isdigit() and text[index - 1] in _LETTERS + " ":
            starts.append(index)
    ends = [*starts[1:], len(text)]
    return [text[start:end].strip() for start, end in zip(starts, ends, strict=True)]


def bytes_in(text: str) -> int | None:
    """The bytes of "512K", "256M" or "2GiB"; None if it is not a size above 0."""
    number, unit = _split(text)
    factor = _SIZE_UNITS.get(unit.upper().removesuffix("B").removesuffix("I"))
    if number is None or factor is None:
        return None
    value = number * factor
    return int(value) if 1 <= value < _MOST else None


def shown_bytes(value: float) -> str:
    """1 to 3 digits and a unit where that is exact enough: 100M, 1.5G; else the bytes."""
    for unit in "TGMK":
        size = _SIZE_UNITS[unit]
        if value >= size:
            rounded = round(value / size, 1)
            if abs(rounded * size - value) > value / 1000:
                continue
            return f"{rounded:g}{unit}"
    return f"{value:g}" if value < 1 << 10 else str(int(value))


def shown_seconds(value: float) -> str:
    """2s, 1.5s, 5m, 2h; 100ms below one second."""
    if value < 1:
        return f"{value * 1000:g}ms"
    for unit in "dhm":
        size = _TIME_UNITS[unit]
        if value >= size and value % size == 0:
            return f"{value / size:g}{unit}"
    return f"{value:g}s"


def _split(text: str) -> tuple[float | None, str]:
    text = text.strip()
    digits = text.rstrip(_LETTERS)
    unit = text[len(digits) :]
    digits = digits.rstrip(" ")
    if not digits or digits.strip("0123456789.") or not digits.isascii():
        return None, ""
    try:
        return float(digits), unit
    except ValueError:
        return None, ""
