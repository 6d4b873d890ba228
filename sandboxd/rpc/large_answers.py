"""Large answers as JSON, without keeping the event loop from its other work.

Escaping is one call that holds the interpreter: 8 MiB of control characters take a fifth of a
second. A thread escapes them in pieces, and the event loop runs between two pieces.
"""

from __future__ import annotations

from typing import Any

import anyio.to_thread
import msgspec

from sandboxd_proto.messages.execute import Captured, ExecuteResult
from sandboxd_proto.messages.fs import FileData, FolderList
from sandboxd_proto.wire import encode

LARGE = 128 * 1024
PIECE = 32 * 1024
MANY = 500  # entries


async def with_escaped_output(answer: Any) -> Any:
    """The answer with its large parts as JSON already."""
    result = answer.get("result") if isinstance(answer, dict) else None
    if isinstance(result, FileData) and len(result.data) >= LARGE:
        data = await anyio.to_thread.run_sync(lambda: msgspec.Raw(escape(result.data)))
        _check_room(len(data))
        return {**answer, "result": msgspec.structs.replace(result, data=data)}
    if isinstance(result, FolderList) and len(result.entries) >= MANY:
        listed = await anyio.to_thread.run_sync(_as_json, result)
        _check_room(len(listed))
        return {**answer, "result": listed}
    if not isinstance(result, ExecuteResult):
        return answer
    if len(result.stdout.data) + len(result.stderr.data) < LARGE:
        return answer
    streams = {"stdout": result.stdout, "stderr": result.stderr}
    escaped = await anyio.to_thread.run_sync(_escape_all, streams)
    _check_room(sum(len(one.data) for one in escaped.values()))
    return {**answer, "result": msgspec.structs.replace(result, **escaped)}


def _check_room(size: int) -> None:
    """MemoryError before the answer is encoded: msgspec crashes where it gets no memory."""
    bytearray(4 * size)


def _as_json(result: FolderList) -> msgspec.Raw:
    """What `encode(result)` gives, in pieces."""
    entries = result.entries
    pieces = (encode(entries[at : at + MANY])[1:-1] for at in range(0, len(entries), MANY))
    rest = encode(msgspec.structs.replace(result, entries=[])).replace(b"[]", b"[%b]", 1)
    return msgspec.Raw(rest % b",".join(pieces))


def _escape_all(streams: dict[str, Captured]) -> dict[str, Captured]:
    return {
        name: msgspec.structs.replace(stream, data=msgspec.Raw(escape(stream.data)))
        for name, stream in streams.items()
    }


def escape(text: str) -> bytes:
    """What `encode(text)` gives."""
    pieces = (encode(text[at : at + PIECE])[1:-1] for at in range(0, len(text), PIECE))
    return b'"%b"' % b"".join(pieces)
