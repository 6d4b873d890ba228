"""Large answers as JSON, without keeping the event loop from its other work.

Escaping is one call that holds the interpreter: 8 MiB of control characters take a fifth of a
second. A thread escapes them in pieces, and the event loop runs between two pieces.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable
from typing import Any, TypeVar

import anyio
import anyio.to_thread
import msgspec

from sandboxd import event_loop
from sandboxd_proto.messages.execute import Captured, ExecuteResult
from sandboxd_proto.messages.fs import FileData, FolderList
from sandboxd_proto.wire import encode

LARGE = 128 * 1024
PIECE = 32 * 1024
MANY = 500  # entries
# A control character is six bytes, which are there three times at the most (the text, the answer,
# its frame), besides what buffers have in reserve.
MOST_GROWTH = 24
T = TypeVar("T")
_one_at_a_time = anyio.Lock()


async def with_escaped_output(answer: Any) -> Any:
    """The answer with its large parts as JSON already. MemoryError: there is no memory for it."""
    result = answer.get("result") if isinstance(answer, dict) else None
    if isinstance(result, FileData) and len(result.data) >= LARGE:
        data = await _made(len(result.data), lambda: msgspec.Raw(escape(result.data)))
        return {**answer, "result": msgspec.structs.replace(result, data=data)}
    if isinstance(result, FolderList) and len(result.entries) >= MANY:
        return {**answer, "result": await _made(LARGE, lambda: _as_json(result))}
    if not isinstance(result, ExecuteResult):
        return answer
    size = len(result.stdout.data) + len(result.stderr.data)
    if size < LARGE:
        return answer
    streams = {"stdout": result.stdout, "stderr": result.stderr}
    escaped = await _made(size, lambda: _escape_all(streams))
    return {**answer, "result": msgspec.structs.replace(result, **escaped)}


async def _made(size: int, work: Callable[[], T]) -> T:
    """By a thread, one at a time: msgspec crashes where it gets no memory, so there must be some
    for the whole answer. It is encoded before the next one begins."""
    await event_loop.enter_task()
    async with _one_at_a_time:
        _demand(MOST_GROWTH * size)
        return await anyio.to_thread.run_sync(work)


def _demand(size: int) -> None:
    """MemoryError where the kernel has no room for so much. Nothing of it is touched: for 16 MiB of
    output that would take the event loop a quarter of a second, and 400 MB."""
    try:
        mmap.mmap(-1, size).close()
    except OSError:
        raise MemoryError from None


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


def escape(text: str) -> bytearray:
    """What `encode(text)` gives."""
    made = bytearray(b'"')
    for at in range(0, len(text), PIECE):
        made += encode(text[at : at + PIECE])[1:-1]
    made += b'"'
    return made
