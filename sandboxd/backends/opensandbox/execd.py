"""Commands of one sandbox, over the HTTP API of its execd."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager

import anyio

from sandboxd.backends.opensandbox.events import (
    EventParser,
    ExecdEvent,
    StreamViolation,
    output_bytes,
)
from sandboxd.backends.opensandbox.http_client import ApiError, HttpClient, HttpTarget
from sandboxd_proto.errors import SandboxdError, SandboxUnavailable

ANSWER_S = 60.0  # until execd says that the command runs
QUIET_S = 30.0  # then it is looked at whether the sandbox still exists
INTERRUPT_S = 5.0
PING_S = 5.0
PING_EVERY_S = 0.1
CAPTURE_S = 30.0
CAPTURE_MAX = 64 << 10


class Execd:
    """`check`: raises when the sandbox does not exist any more."""

    def __init__(
        self, http: HttpClient, target: HttpTarget, check: Callable[[], Awaitable[None]]
    ) -> None:
        self._http = http
        self._target = target
        self._check = check

    def said(self, text: str) -> str:
        """Words of execd for our errors."""
        return self._http.said(text)

    async def wait_ready(self, timeout_s: float) -> None:
        """Until it answers: a sandbox is Running before its execd listens."""
        last = "it was not asked"
        with anyio.move_on_after(timeout_s):
            while True:
                try:
                    await self._http.call("GET", self._target, "/ping", timeout_s=PING_S)
                    return
                except ApiError as error:
                    if error.status < 500:
                        return  # it answers
                    last = error.message
                except SandboxdError as error:
                    last = error.message
                await anyio.sleep(PING_EVERY_S)
        raise SandboxUnavailable(
            f"the sandbox runs, and its execd does not answer in {timeout_s:g} s: {last}",
            remedy="check the server's [runtime] execd_image and, without via_server, that this "
            "machine can reach the ports of its sandboxes",
        )

    @asynccontextmanager
    async def run(
        self, argv: Sequence[str], *, cwd: str, envs: Mapping[str, str]
    ) -> AsyncIterator[AsyncIterator[ExecdEvent]]:
        """The events of one command. Leaving it does not stop the command: `interrupt` does."""
        body = {"argv": list(argv), "cwd": cwd, "envs": dict(envs), "background": False}
        call = self._http.stream("POST", self._target, "/command", body=body)
        try:
            with anyio.fail_after(ANSWER_S):
                answer = await call.__aenter__()
        except TimeoutError:
            raise SandboxUnavailable(
                f"the sandbox's execd did not start the command in {ANSWER_S:g} s"
            ) from None
        try:
            async with aclosing(self._events(answer.content.readany)) as events:
                yield events
        except BaseException as error:
            if not await call.__aexit__(type(error), error, error.__traceback__):
                raise
        else:
            answer.close()
            await call.__aexit__(None, None, None)

    async def _events(
        self, read: Callable[[], Awaitable[bytes]]
    ) -> AsyncGenerator[ExecdEvent, None]:
        parser = EventParser()
        try:
            while data := await self._next(read):
                for event in parser.feed(data):
                    yield event
        except StreamViolation as wrong:
            raise SandboxUnavailable(
                f"the result of the command is unknown: execd sent {wrong}"
            ) from None
        for event in parser.rest():
            yield event

    async def _next(self, read: Callable[[], Awaitable[bytes]]) -> bytes:
        while True:
            with anyio.move_on_after(QUIET_S):
                return await read()
            await self._check()

    async def interrupt(self, command: str) -> None:
        """End a command. One that has ended already is no error."""
        try:
            await self._http.call(
                "DELETE", self._target, "/command", query={"id": command}, timeout_s=INTERRUPT_S
            )
        except ApiError as error:
            if error.status not in (400, 404):
                raise

    async def capture(
        self, argv: Sequence[str], *, timeout_s: float = CAPTURE_S
    ) -> tuple[int | None, str, str]:
        """Exit code, stdout and stderr of a short command of our own.

        None where it has no exit code, takes too long, or prints too much.
        """
        printed_by = {"stdout": bytearray(), "stderr": bytearray()}
        code: int | None = None
        with anyio.move_on_after(timeout_s):
            async with self.run(argv, cwd="/", envs={}) as events:
                async for event in events:
                    if event.kind in printed_by:
                        printed_by[event.kind] += output_bytes(event.text)
                        if len(printed_by[event.kind]) > CAPTURE_MAX:
                            break
                    elif event.kind == "execution_complete":
                        code = 0
                        break
                    elif event.kind == "error":
                        code = int(event.text) if _is_exit_code(event.text) else None
                        break
        out, err = (bytes(one).decode("utf-8", "replace") for one in printed_by.values())
        return code, out, self.said(err)


def _is_exit_code(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 3
