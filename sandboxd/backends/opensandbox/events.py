"""The event stream of execd: JSON objects between blank lines, or SSE's `data:` lines. Pure."""

from __future__ import annotations

import json

import msgspec

EVENT_MAX = 8 << 20


class StreamViolation(Exception):
    """What came is no event stream."""


class ExecdEvent(msgspec.Struct, frozen=True):
    """`kind`: init, stdout, stderr, error, execution_complete; others carry nothing of use."""

    kind: str
    text: str = ""


class EventParser:
    """Feed it one stream in pieces of any size."""

    def __init__(self) -> None:
        self._held = b""

    def feed(self, data: bytes) -> list[ExecdEvent]:
        *lines, self._held = (self._held + data).split(b"\n")
        if len(self._held) > EVENT_MAX:
            raise StreamViolation(f"an event of more than {EVENT_MAX} bytes")
        return [event for line in lines if (event := _event(line)) is not None]

    def rest(self) -> list[ExecdEvent]:
        """At the end of the stream. A half event is none."""
        held, self._held = self._held, b""
        try:
            event = _event(held)
        except StreamViolation:
            return []
        return [] if event is None else [event]


def _event(line: bytes) -> ExecdEvent | None:
    line = line.strip()
    if line.startswith(b"data:"):
        line = line[len(b"data:") :].strip()
    elif line.startswith((b":", b"event:", b"id:", b"retry:")):
        return None
    if not line:
        return None
    try:
        said = json.loads(line)
    except (ValueError, RecursionError):
        raise StreamViolation("a line that is not JSON") from None
    if not isinstance(said, dict):
        raise StreamViolation("an event that is not an object")
    return ExecdEvent(str(said.get("type")), _text(said))


def _text(said: dict[str, object]) -> str:
    error = said.get("error")
    if said.get("type") == "error":
        value = error.get("evalue") if isinstance(error, dict) else said.get("evalue")
        return "" if value is None else str(value)
    text = said.get("text")
    return text if isinstance(text, str) else ""


def output_bytes(text: str) -> bytes:
    """What the command printed: a line without its end, or a lone line end for a blank one."""
    return (text if text == "\n" else f"{text}\n").encode("utf-8", "replace")
