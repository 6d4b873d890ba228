"""The connection to the bridge of one sandbox: its lines are read, frames for it are uploaded."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable

import anyio

from sandboxd.backends.opensandbox.execd import Execd
from sandboxd.backends.opensandbox.execd_files import ExecdFiles
from sandboxd.backends.opensandbox.http_client import ApiError
from sandboxd.backends.opensandbox.remote_init.framing import Frame, Kind, LineReader, file_of
from sandboxd.linux.init_client.codec import InitProtocolViolation
from sandboxd_proto.errors import SandboxdError

log = logging.getLogger(__name__)
FILE_MAX = 1 << 20  # frames in one upload; a single one may be longer
TRIES, AGAIN_S = 3, 0.5
INTERRUPT_S = 3.0
UPLOAD_S = 60.0


class Link:
    """`on_frame` is called with each frame, in order, and must not wait. `broken`: why it ended."""

    def __init__(
        self, execd: Execd, files: ExecdFiles, folder: str, on_frame: Callable[[Frame], None],
        at_end: Callable[[], None],
    ) -> None:  # fmt: skip
        self._execd = execd
        self._files = files
        self._folder = folder
        self._on_frame = on_frame
        self._at_end = at_end
        self._waiting: deque[Frame] = deque()
        self._wake = anyio.Event()
        self._number = 0
        self._command = ""
        self.broken: str | None = None
        self.scope = anyio.CancelScope()

    def send(self, kind: Kind, command: int, data: bytes = b"") -> None:
        self._waiting.append(Frame(kind, command, data))
        self._wake.set()

    def give_up(self, why: str) -> None:
        self.broken = self.broken or why
        self.scope.cancel()

    async def run(self) -> None:
        """To the end of the bridge or of the connection. No error leaves it."""
        try:
            with self.scope:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._upload)
                    await self._read()
                    tasks.cancel_scope.cancel()
        except Exception:
            log.exception("the connection to a remote init failed")
        self.broken = self.broken or "the connection to its init ended"
        self._at_end()
        with anyio.CancelScope(shield=True), anyio.move_on_after(INTERRUPT_S):
            await self._interrupt()

    async def _read(self) -> None:
        lines = LineReader()
        try:
            async with self._execd.run(
                [f"{self._folder}/init", "--remote", self._folder], cwd="/", envs={}
            ) as events:
                async for event in events:
                    if event.kind == "init":
                        self._command = self._command or event.text
                    elif event.kind == "stdout":
                        # Not outside: there an error of this kind is one of the connection.
                        try:
                            frame = lines.feed(event.text)
                            if frame is not None:
                                self._on_frame(frame)
                        except InitProtocolViolation as lie:
                            self.broken = f"the sandbox's init was tampered with: {lie}"
                            return
                    elif event.kind in ("error", "execution_complete"):
                        self.broken = f"its init ended ({self._execd.said(event.text) or 0})"
                        return
            self.broken = "execd's stream ended without an exit code"
        except ApiError as error:
            self.broken = str(error)
        except SandboxdError as error:
            self.broken = error.message

    async def _upload(self) -> None:
        while True:
            await self._wake.wait()
            self._wake = anyio.Event()
            while self._waiting:
                frames, size = [self._waiting.popleft()], 0
                while self._waiting and size < FILE_MAX:
                    size += len(self._waiting[0].data)
                    frames.append(self._waiting.popleft())
                await self._put(file_of(frames))

    async def _put(self, content: bytes) -> None:
        """Again where it is not known to have arrived: a file that was read already is ignored."""
        path = f"{self._folder}/{self._number}"
        self._number += 1
        for tried in range(TRIES):
            try:
                await self._files.put(content, path, UPLOAD_S)
                return
            except (SandboxdError, ApiError) as error:
                why = error.message
            await anyio.sleep(AGAIN_S * (tried + 1))
        self.give_up(f"nothing can be sent to its init: {why}")

    async def _interrupt(self) -> None:
        """The bridge of a sandbox that is kept alive by nobody ends with it in any case."""
        if self._command:
            try:
                await self._execd.interrupt(self._command)
            except (SandboxdError, ApiError) as error:
                log.debug("the bridge of a sandbox was not ended: %s", error)
