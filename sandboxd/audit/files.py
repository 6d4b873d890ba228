"""The files of a trail: `audit-<first seq>.jsonl`, in order, and bounded reading of their lines."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

NAME = re.compile(r"^audit-(\d+)\.jsonl$")
FIRST_PREV = "0" * 64
NEAR_BYTES = 64 * 1024
_SEQ = re.compile(rb'^\{"v":\d+,"seq":(\d+),')


class TrailFile(NamedTuple):
    first_seq: int
    path: str


def trail_files(folder: str) -> list[TrailFile]:
    """Oldest first."""
    found = (NAME.match(name) for name in os.listdir(folder))
    return sorted(TrailFile(int(m.group(1)), os.path.join(folder, m.string)) for m in found if m)


def new_file(folder: str, first_seq: int) -> TrailFile:
    return TrailFile(first_seq, os.path.join(folder, f"audit-{first_seq}.jsonl"))


def line_digest(line: bytes) -> str:
    """What the next record's `prev` is: the SHA-256 of the line without its line feed."""
    return hashlib.sha256(line.removesuffix(b"\n")).hexdigest()


def lines_of(file: TrailFile, after: int = 0) -> Iterator[bytes]:
    """The whole lines of a file; an unfinished last one is left out. A removed file has none.
    Those up to the record `after` are left out as far as a search by halves finds them."""
    try:
        with open(file.path, "rb") as opened:
            if after >= file.first_seq:
                opened.seek(_start_after(opened, after))
            for line in opened:
                if line.endswith(b"\n"):
                    yield line
    except FileNotFoundError:
        return


def _start_after(opened: BinaryIO, after: int) -> int:
    """An offset where a line begins, with no record above `after` before it."""
    low, high = 0, opened.seek(0, os.SEEK_END)
    while high - low > NEAR_BYTES:
        middle = (low + high) // 2
        opened.seek(middle)
        opened.readline()  # the rest of a line
        start = opened.tell()
        found = _SEQ.search(opened.readline(NEAR_BYTES))
        if start < high and found is not None and int(found.group(1)) <= after:
            low = start
        else:
            high = middle
    return low


def last_line(path: str) -> bytes | None:
    """The last whole line, found from the end."""
    block = 64 * 1024
    with open(path, "rb") as opened:
        size = opened.seek(0, os.SEEK_END)
        tail = b""
        while size > 0:
            step = min(block, size)
            size -= step
            opened.seek(size)
            tail = opened.read(step) + tail
            end = tail.rfind(b"\n")
            if end < 0:
                continue
            start = tail.rfind(b"\n", 0, end)
            if start >= 0 or size == 0:
                return tail[start + 1 : end + 1]
    return None


def torn_bytes(path: str) -> int:
    """How many bytes after the last line feed."""
    with open(path, "rb") as opened:
        size = opened.seek(0, os.SEEK_END)
        position = size
        while position > 0:
            step = min(64 * 1024, position)
            position -= step
            opened.seek(position)
            end = opened.read(step).rfind(b"\n")
            if end >= 0:
                return size - (position + end + 1)
    return size
