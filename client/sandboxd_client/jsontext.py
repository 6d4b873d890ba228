"""JSON without `import json`, for `sandboxctl run`, and the lines that carry it.

`json` imports re and enum, which costs half of Python's own start. Its C accelerator `_json` does
the same work alone. Where an interpreter has no `_json`, the standard module is used.

A client chooses its framing, and this one always uses one message a line: it needs no more of
proto's FrameDecoder than `LineBuffer`, which copies little.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

# A captured result holds two streams of 8 MiB, and JSON may need six characters for one byte.
LINE_LIMIT = 128 * 1024 * 1024

try:
    from _json import encode_basestring as _quote
    from _json import make_scanner as _make_scanner
except ImportError:  # not CPython
    import json

    def dumps(value: Any) -> bytes:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()

    def loads(text: bytes) -> Any:
        return json.loads(text)

else:

    class _Rules:
        strict = True
        object_hook = None
        object_pairs_hook = None
        parse_float = float
        parse_int = int
        parse_constant = float
        array_hook = None

    # typeshed asks for a scanner as its own context; any object with these attributes serves.
    _scan: Callable[[str, int], tuple[Any, int]] = _make_scanner(_Rules())  # type: ignore[arg-type]

    def dumps(value: Any) -> bytes:
        """Compact UTF-8. A string that is not valid Unicode raises UnicodeEncodeError."""
        out: list[str] = []
        _write(value, out)
        return "".join(out).encode()

    def loads(text: bytes) -> Any:
        """One JSON value; ValueError for anything else."""
        source = text.decode().strip()
        try:
            value, end = _scan(source, 0)
        except StopIteration:
            raise ValueError("not JSON") from None
        if end != len(source):
            raise ValueError("more than one JSON value")
        return value

    def _write(value: Any, out: list[str]) -> None:
        if isinstance(value, str):
            out.append(_quote(value))
        elif value is None or value is True or value is False:
            out.append("null" if value is None else "true" if value else "false")
        elif isinstance(value, (int, float)):
            out.append(repr(value))
        elif isinstance(value, dict):
            for index, (key, item) in enumerate(value.items()):
                out.append(f"{',' if index else '{'}{_quote(key)}:")
                _write(item, out)
            out.append("}" if value else "{}")
        else:
            for index, item in enumerate(value):
                out.append("," if index else "[")
                _write(item, out)
            out.append("]" if value else "[]")


class LineTooLong(ValueError):
    """The server sent more than `LINE_LIMIT` bytes without a line end."""


class LineBuffer:
    """Takes received bytes; returns the lines that are complete."""

    def __init__(self, limit: int = LINE_LIMIT) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[bytes]:
        head, newline, rest = data.partition(b"\n")
        if not newline:
            self._keep(data)
            return []
        first = b"".join([*self._parts, head])
        self._parts, self._size = [], 0
        *lines, tail = rest.split(b"\n")
        self._keep(tail)
        return [line for line in (first, *lines) if line]

    def _keep(self, data: bytes) -> None:
        if not data:
            return
        self._parts.append(data)
        self._size += len(data)
        if self._size > self._limit:
            raise LineTooLong(f"a message of the daemon is longer than {self._limit} bytes")


def printable(document: bytes) -> bytes:
    """The same JSON with control and bidi characters escaped, for a terminal.

    Outside of strings JSON has none of them, and in a string an escape means the same.
    """
    text = document.decode()
    if text.isprintable():
        return document
    return "".join(c if c.isprintable() else _escaped(c) for c in text).encode()


def _escaped(character: str) -> str:
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))
