"""Files of one sandbox, over the HTTP API of its execd: one is sent, one is fetched."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import BinaryIO

import anyio

from sandboxd.backends.opensandbox.http_client import Body, HttpClient, HttpTarget
from sandboxd_proto.errors import SandboxUnavailable

PIECE = 256 << 10
STALL_S = 60.0  # without a byte
Told = Callable[[int, int], None]  # bytes done, bytes in all


class ExecdFiles:
    """`transfer_s`: for one file as a whole."""

    def __init__(self, http: HttpClient, target: HttpTarget, transfer_s: float) -> None:
        self._http = http
        self._target = target
        self.transfer_s = transfer_s

    async def send(self, file: BinaryIO, path: str, told: Told) -> None:
        """The whole file, which is on this machine's disk, to `path` in the sandbox."""
        size = os.fstat(file.fileno()).st_size
        mark = secrets.token_hex(16)
        head, tail = _frame(mark, path)
        pieces = _pieces(file, size, head, tail, told)
        body = Body(pieces, len(head) + size + len(tail), f"multipart/form-data; boundary={mark}")
        await self._http.call(
            "POST", self._target, "/files/upload", body=body, timeout_s=self.transfer_s
        )

    async def put(self, content: bytes, path: str, timeout_s: float, mode: int = 600) -> None:
        """`mode` has the digits of an octal number, as execd reads it."""
        mark = secrets.token_hex(16)
        head, tail = _frame(mark, path, mode)
        whole = head + content + tail
        body = Body(_once(whole), len(whole), f"multipart/form-data; boundary={mark}")
        await self._http.call("POST", self._target, "/files/upload", body=body, timeout_s=timeout_s)

    async def fetch(self, path: str, out: BinaryIO, most: int, told: Told) -> None:
        """SandboxUnavailable for one of more than `most` bytes, and for one that is cut off."""
        try:
            with anyio.fail_after(self.transfer_s):
                async with self._http.stream(
                    "GET", self._target, "/files/download", query={"path": path}
                ) as answer:
                    size = answer.content_length
                    await self._take(answer.content.readany, out, size, most, told)
        except TimeoutError:
            raise self._http.unreachable(
                f"a file was not transferred in {self.transfer_s:g} s"
            ) from None

    async def _take(
        self, read: Callable[[], Awaitable[bytes]], out: BinaryIO, size: int | None, most: int,
        told: Told,
    ) -> None:  # fmt: skip
        done = 0
        while True:
            with anyio.move_on_after(STALL_S) as waiting:
                data = await read()
            if waiting.cancelled_caught:
                raise self._http.unreachable(f"a transfer stood still for {STALL_S:g} s")
            if not data:
                break
            done += len(data)
            if done > most or (size is not None and done > size):
                raise SandboxUnavailable(
                    f"the sandbox sent back more than {min(most, size or most)} bytes",
                    remedy="raise [opensandbox] copy_max_bytes, or write less into the workspace",
                )
            out.write(data)
            told(done, size or done)
        if size is not None and done != size:
            raise self._http.unreachable(f"{done} bytes came where {size} were announced")


def _frame(mark: str, path: str, mode: int = 600) -> tuple[bytes, bytes]:
    """What stands around the content in a form with two files: its metadata and itself."""
    metadata = json.dumps({"path": path, "mode": mode})
    parts = (
        ("metadata", "application/json", metadata + "\r\n"),
        ("file", "application/octet-stream", ""),
    )
    head = "".join(
        f'--{mark}\r\nContent-Disposition: form-data; name="{name}"; filename="{name}"\r\n'
        f"Content-Type: {kind}\r\n\r\n{content}"
        for name, kind, content in parts
    )
    return head.encode(), f"\r\n--{mark}--\r\n".encode()


async def _once(whole: bytes) -> AsyncIterator[bytes]:
    yield whole


async def _pieces(
    file: BinaryIO, size: int, head: bytes, tail: bytes, told: Told
) -> AsyncIterator[bytes]:
    yield head
    at = 0
    while at < size:
        piece = os.pread(file.fileno(), min(PIECE, size - at), at)
        at += len(piece)
        yield piece
        told(at, size)
    yield tail
