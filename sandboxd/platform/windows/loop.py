"""The event loop of Windows: asyncio's proactor loop over a proactor that others may use too.

`current_proactor` gives pipes and processes the completion port of the running loop without
touching a private name of asyncio.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any, Protocol, cast

assert sys.platform == "win32"


class HasHandle(Protocol):
    """Hashable and weakly referable; `fileno` answers a Windows handle."""

    def fileno(self) -> int: ...


class Proactor(Protocol):
    """The part of asyncio.IocpProactor that is used; it takes any object with a handle."""

    def recv(self, conn: HasHandle, nbytes: int) -> asyncio.Future[bytes]: ...
    def send(self, conn: HasHandle, buf: Any) -> asyncio.Future[int]: ...
    def accept_pipe(self, pipe: HasHandle) -> asyncio.Future[Any]: ...
    def wait_for_handle(
        self, handle: int, timeout: float | None = None
    ) -> asyncio.Future[bool]: ...


class SandboxdLoop(asyncio.ProactorEventLoop):
    """Knows its proactor."""

    def __init__(self) -> None:
        made = asyncio.IocpProactor()
        super().__init__(made)
        self.proactor = cast(Proactor, made)


def new_event_loop() -> SandboxdLoop:
    return SandboxdLoop()


def current_proactor() -> Proactor:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SandboxdLoop), "the daemon runs on its own loop"
    return loop.proactor
