"""Bases of sandboxes and processes that wrap another one: every call is passed on.

A subclass overrides what it changes. It wraps processes in `spawn` and `spawn_now`.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from sandboxd.types import ExitReport, ExplainsEnd, Process, Sandbox

S = TypeVar("S", bound=Sandbox)


class WrappedSandbox(Generic[S]):
    def __init__(self, inner: S) -> None:
        self._inner = inner

    @property
    def alive(self) -> bool:
        return self._inner.alive

    def verify(self) -> bool:
        return self._inner.verify()

    def last_words(self) -> str | None:
        return self._inner.last_words() if isinstance(self._inner, ExplainsEnd) else None


class WrappedProcess:
    def __init__(self, inner: Process) -> None:
        self._inner = inner

    @property
    def pty(self) -> int | None:
        return self._inner.pty

    @property
    def filter_loaded(self) -> bool:
        return self._inner.filter_loaded

    async def started(self) -> None:
        await self._inner.started()

    async def wait(self, *, tree: bool = True) -> ExitReport:
        return await self._inner.wait(tree=tree)

    def signal(self, number: int, *, whole_tree: bool = False) -> None:
        self._inner.signal(number, whole_tree=whole_tree)

    def kill(self) -> None:
        self._inner.kill()

    def close(self) -> None:
        self._inner.close()
