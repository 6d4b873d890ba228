"""One watch for all persistent sandboxes that have the same protected paths.

A user has 128 inotify instances, and a watch without one looks at every path twenty times a second:
hundreds of sandboxes of one workspace would keep the daemon busy with that alone. All of them see
what one of them makes, so one watch serves all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import anyio

from sandboxd import event_loop
from sandboxd.policy import plan
from sandboxd.policy.protected.nested_git import Repositories
from sandboxd.workspace_guard.guard import NO_REPOSITORIES, Guard, OnMoved, PathsMoved
from sandboxd.workspace_guard.repositories.planted_watch import PlantedWatch
from sandboxd_proto.errors import SandboxUnavailable
from sandboxd_proto.locations import KEPT_FOLDER

if TYPE_CHECKING:
    from sandboxd.workspace_guard.held_roots import HeldRoots

CONCLUDE_S = 10.0
Key = tuple[tuple[plan.Protected, ...], tuple[str, ...], tuple[plan.Grant, ...]]


@dataclass(eq=False, slots=True)
class _Shared:
    guard: Guard
    planted: PlantedWatch
    users: int = 0
    commands: int = 0
    told: list[Callable[[], None]] = field(default_factory=list)
    hearing: list[OnMoved] = field(default_factory=list)

    def begin(self) -> None:
        self.commands += 1
        self.guard.idle = self.planted.idle = False
        self.begin_background()

    def end(self) -> None:
        self.commands -= 1
        self.guard.idle = self.planted.idle = self.commands == 0
        self.end_background()

    def begin_background(self) -> None:
        self.guard.processes_began()
        self.planted.begin()

    def end_background(self) -> None:
        self.guard.processes_ended()
        self.planted.end()

    def tell_moved(self, path: str, moved_to: str) -> None:
        """Of several commands none can be named as the one that made it."""
        if self.commands == 1:
            for hear in self.hearing:
                hear(path, moved_to)

    def tell(self) -> None:
        for violated in list(self.told):
            violated()


class SharedGuards:
    def __init__(self) -> None:
        self._by_key: dict[Key, _Shared] = {}

    def join(
        self, spec: plan.SandboxSpec, violated: Callable[[], None],
        nested: Repositories = NO_REPOSITORIES,
    ) -> Member:  # fmt: skip
        """`violated` is called when a protected path was created."""
        writable = tuple(one for one in spec.grants if one.access == "write")
        key = spec.protected, nested.folders, writable
        shared = self._by_key.get(key)
        if shared is None or shared.guard.moved:
            settings = Repositories(git_homes=nested.git_homes)
            guard = Guard(spec, settings)
            planted = PlantedWatch(nested, spec.protected, guard.roots)
            shared = self._by_key[key] = _Shared(guard, planted)
            guard.on_moved = shared.tell_moved
            shared.guard.idle = True
            shared.guard.start(shared.tell)
        shared.users += 1
        shared.told.append(violated)
        return Member(self._by_key, key, shared, violated)


class Member:
    """One sandbox's part: `mute` before its processes are ended, `conclude` when they are dead."""

    def __init__(
        self, by_key: dict[Key, _Shared], key: Key, shared: _Shared, violated: Callable[[], None]
    ) -> None:
        self._by_key = by_key
        self._key = key
        self._shared: _Shared | None = shared
        self.failures = shared.guard.failures
        self._violated = violated
        self._muted = False
        self._running = 0
        self._concluded = anyio.Event()
        self._found: PathsMoved = ()

    @property
    def roots(self) -> HeldRoots | None:
        return self._shared.guard.roots if self._shared is not None else None

    @property
    def moved(self) -> str | None:
        """How a folder was moved that the sandbox can write."""
        roots = self.roots
        return roots.why if roots is not None and roots.moved else None

    @property
    def ended_for(self) -> str | None:
        """Why `violated` was called."""
        why = self._shared.guard.ended_for if self._shared is not None else None
        return self.moved or (why and f"{why}; what appeared is moved to {KEPT_FOLDER}")

    def check_place(self) -> None:
        """Before something is done in the sandbox, which is ended if a folder was moved."""
        if self._shared is not None and self._shared.guard.notice_move():
            raise SandboxUnavailable(
                f"{self.moved} while the sandbox could write it, which is ended",
                remedy="make another one with sandbox/create, for the folder where it is now",
            )

    def begin(self) -> None:
        """A command starts: until its end git's operations may be under way."""
        if self._shared is not None:
            self._running += 1
            self._shared.begin()

    def end(self) -> None:
        if self._shared is not None:
            self._running -= 1
            self._shared.end()

    def hear_moved(self, hear: OnMoved) -> Callable[[], None]:
        """`hear` is told what is moved aside until the function that is returned is called."""
        if self._shared is None:
            return lambda: None
        hearing = self._shared.hearing
        hearing.append(hear)
        return lambda: hearing.remove(hear)

    @contextmanager
    def background(self) -> Iterator[None]:
        """Processes that a command left behind live."""
        shared = self._shared
        if shared is not None:
            shared.begin_background()
        try:
            yield
        finally:
            if shared is not None:
                shared.end_background()

    async def settle(self) -> PathsMoved:
        """What appeared or was changed since the last time; after each command.

        In a sandbox that is being ended its end finds that, and this waits for it.
        """
        found: PathsMoved = ()
        if self._shared is not None and not self._muted and not self._shared.guard.known_moved:
            shared = self._shared
            found = await shared.guard.settle()
            found = tuple({**dict(found), **await shared.planted.settle()}.items())
            if not self._muted and not shared.guard.notice_move():
                return found
        await event_loop.enter_task()
        with anyio.move_on_after(CONCLUDE_S):
            await self._concluded.wait()
        return tuple(sorted({**dict(found), **dict(self._found)}.items()))

    def mute(self) -> None:
        self._muted = True
        if self._shared is not None and self._violated in self._shared.told:
            self._shared.told.remove(self._violated)

    async def conclude(self) -> PathsMoved:
        """(path, where it is now) of what appeared. The last one to leave ends the watch."""
        self.mute()
        shared, self._shared = self._shared, None
        if shared is None:
            return ()
        for _ in range(self._running):  # they are dead; `end` has nothing to do any more
            shared.end()
        found = await shared.guard.conclude()
        shared.users -= 1
        if shared.users == 0:
            if self._by_key.get(self._key) is shared:
                del self._by_key[self._key]
            shared.guard.stop()
            found = tuple({**dict(found), **await shared.planted.close()}.items())
            if shared.guard.needed:
                await anyio.to_thread.run_sync(shared.guard.close)
            else:
                shared.guard.close()
        self._found = found
        self._concluded.set()
        return found
