"""Guard protected paths during a run: a path that appears is moved aside.

Paths that exist are mounted read-only. Missing paths are watched, because no placeholder may be
created on the host. A path that appears is moved aside at once; a folder stays while the command
runs, and its files are moved. The command is killed if the host could run the file immediately, or
if the command makes it repeatedly.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection
from functools import partial
from typing import TYPE_CHECKING

import anyio

from sandboxd import event_loop
from sandboxd.policy import plan
from sandboxd.policy.display_names import named
from sandboxd.policy.plan import SandboxSpec
from sandboxd.policy.protected.nested_git import Repositories
from sandboxd.workspace_guard.cache_locks import CacheLocks
from sandboxd.workspace_guard.current_platform import hold_roots, open_watch
from sandboxd.workspace_guard.interface import MovedPath, Watch
from sandboxd.workspace_guard.polling import POLL_S, pause_after
from sandboxd.workspace_guard.repositories.planted_watch import undo_all
from sandboxd.workspace_guard.run_warnings import RunWarnings
from sandboxd.workspace_guard.running_commands import moved_paths

if TYPE_CHECKING:
    from sandboxd.workspace_guard.held_roots import Follower, HeldRoots

log = logging.getLogger(__name__)

# (path, where it is now) of what appeared or was changed.
PathsMoved = tuple[tuple[str, str | None], ...]
OnMoved = Callable[[str, str], None]

MOST_TIMES = 16  # how often a protected path may appear before the command is killed
_MOST_READS = 64
NO_REPOSITORIES = Repositories()


class Guard:
    """The guard of one command, or of a persistent sandbox (`idle` between its commands).

    Make it before the command starts. `start`: events are handled from now on. When its whole tree
    is dead: `stop`, `conclude`, `undo_planted`, `warnings`. Then `rest`, to use it again for an
    equal spec, or `close`. In a persistent sandbox `settle` takes the place of `stop` and
    `conclude` after each command but the last.

    `roots`: those of the sandbox that the command runs in; otherwise those of the spec.
    """

    def __init__(
        self, spec: SandboxSpec | None, nested: Repositories = NO_REPOSITORIES,
        roots: HeldRoots | None = None,
    ) -> None:  # fmt: skip
        protected = spec.protected if spec is not None else ()
        missing = bool(protected) and any(not one.present for one in protected)
        self.spec = spec
        self.kept_at = 0.0
        self.unusable = False  # the workspace's file system does not answer
        self.idle = False  # no command runs, only background processes
        writable = spec.paths("write") if spec is not None else ()
        self.roots: HeldRoots | None = roots.hold() if roots is not None else None
        self._caches = CacheLocks(spec)
        self._follower: Follower | None = None
        self._is_told = False
        try:
            self._caches.take()
            if spec is not None and (protected or nested.folders):
                self.roots = hold_roots(spec)
            self._watch: Watch | None = (
                open_watch(protected, tuple(writable), nested.git_homes) if missing else None
            )
        except BaseException:
            self._release_roots()
            raise
        self._warnings = RunWarnings(nested, protected) if nested.folders else None
        self._seen: set[str] = set()
        self._moved: dict[str, str | None] = {}
        self._failed: dict[str, str] = {}
        self.ended_for: str | None = None  # why the command was ended
        self.on_moved: OnMoved = _unheard  # while a command runs
        self._times = 0
        self._events_fd = -1
        self._is_listening = False
        self._alive = 0  # commands, and what they left running
        self._clock: event_loop.Timer | None = None
        self._violated: Callable[[], None] = _nothing
        self._lock = threading.Lock()  # one judgement at a time
        self._judging: event_loop.Future[list[str]] | None = None

    @property
    def needed(self) -> bool:
        return self._watch is not None

    @property
    def moved(self) -> bool:
        """Whether a writable folder was moved: the command must end."""
        return self.roots is not None and self.roots.moved

    @property
    def known_moved(self) -> bool:
        return self.roots is not None and self.roots.known_moved

    def notice_move(self) -> bool:
        """The same; ends the command."""
        moved = self.moved
        if moved and not self._is_told:
            self._is_told = True
            log.warning("%s: the command is ended", self.roots.why if self.roots else "")
            self._violated()
        return moved

    @property
    def calm(self) -> bool:
        """Whether no event has occurred, so that it can be used for another command."""
        return (
            self._watch is not None
            and not self._seen
            and self._judging is None
            and self._watch.calm
        )

    def start(self, violated: Callable[[], None]) -> None:
        """From now on `violated` is called when the command must end, until `stop`.

        By the event loop itself: a task for it would cost a tenth of a short command.
        """
        if self._warnings is not None and self.spec is not None:
            self._warnings.begin()
        if self._watch is not None:
            self._watch.begin()
            self._events_fd = self._watch.fileno()
            self._is_listening = True
            self._violated = violated
            self._listen(violated)
            if self._watch.large:
                self._in_thread(self._watch.prepare, violated)
            if not self.idle:
                self.processes_began()

    def processes_began(self) -> None:
        """Until `processes_ended` a clock looks, too: not every write is an event."""
        self._alive += 1
        self._set_clock(POLL_S)

    def processes_ended(self) -> None:
        self._alive -= 1

    def _set_clock(self, pause_s: float) -> None:
        if self._is_listening and self._alive and self._clock is None:
            self._clock = event_loop.call_later(pause_s, self._look_by_clock)

    def _look_by_clock(self) -> None:
        self._clock = None
        try:
            self.notice_move()
        except Exception:
            self._give_up(self._violated)
            return
        if self._judging is not None:
            self._set_clock(POLL_S)
            return
        began = time.monotonic()
        work = partial(self._open_watch().judge_changed, finished=self.idle)
        looking = self._in_thread(work, self._violated)
        looking.add_done_callback(lambda _: self._set_clock(pause_after(began)))

    def _listen(self, violated: Callable[[], None]) -> None:
        if self._events_fd >= 0:
            event_loop.add_reader(self._events_fd, self._handle_events, violated)
        elif self._watch is not None:
            self._watch.on_change(partial(self._handle_events, violated))

    def _handle_events(self, violated: Callable[[], None]) -> None:
        """Handle a bounded number of events; the event loop calls it again for the rest."""
        if self._judging is not None:
            return self._pause()
        try:
            self.notice_move()
            self._react(self._open_watch().appeared(), violated)
            if self._watch is not None and (self._watch.unread or self.idle):
                self._judge_in_thread(violated)
        except Exception:
            self._give_up(violated)

    def _open_watch(self) -> Watch:
        assert self._watch is not None
        return self._watch

    def _give_up(self, violated: Callable[[], None]) -> None:
        """Fail closed: a command that cannot be watched is killed."""
        log.exception("the protected paths cannot be watched any more: the command is ended")
        self.ended_for = "its protected paths could not be watched any more"
        self.stop()
        violated()

    def _react(self, found: Collection[str], violated: Callable[[], None]) -> None:
        if not found:
            return
        self._seen.update(found)
        self._times += 1
        watch = self._open_watch()
        harmful = [path for path in found if watch.ends_command(path)]
        if self._times > MOST_TIMES or harmful:
            self.ended_for = f"{named([*harmful, *found][0])} was made, changed or removed"
            violated()
            return
        if self.idle:
            self._in_thread(lambda: self._sweep_only(found, finished=True), violated)
        else:
            self._sweep_only(found, finished=False)

    def _sweep_only(self, found: Collection[str], *, finished: bool) -> list[str]:
        for one in self._open_watch().sweep_only(found, finished=finished):
            self._moved[one.path] = one.moved_to or self._moved.get(one.path)
            self._note_failure(one)
            if one.moved_to and not finished:
                self.on_moved(one.path, one.moved_to)
        return []

    def _note_failure(self, one: MovedPath) -> None:
        if one.error:
            log.error("%s cannot be put right: %s", one.path, one.error)
            self._failed[one.path] = one.error

    def _pause(self) -> None:
        """Handle no events while a thread judges."""
        if self._events_fd >= 0:
            event_loop.remove_reader(self._events_fd)
        elif self._watch is not None:
            self._watch.on_change(None)

    def _judge_in_thread(self, violated: Callable[[], None]) -> None:
        watch = self._open_watch()
        self._in_thread(watch.judge_all if self.idle else watch.judge_unread, violated)

    def _in_thread(
        self, work: Callable[[], list[str]], violated: Callable[[], None]
    ) -> event_loop.Future[list[str]]:
        self._pause()
        self._judging = judging = event_loop.run_in_thread(self._locked, work)
        judging.add_done_callback(lambda done: self._after_judging(done, violated))
        return judging

    def _locked(self, work: Callable[[], list[str]]) -> list[str]:
        with self._lock:
            return work() if self._watch is not None else []

    def _after_judging(
        self, done: event_loop.Future[list[str]], violated: Callable[[], None]
    ) -> None:
        self._judging = None
        try:
            found = done.result()
            if not self._is_listening:
                self._seen.update(found)
                return
            self._react(found, violated)
            self._listen(violated)
        except Exception:
            self._give_up(violated)

    def stop(self) -> None:
        """Stop watching, when the tree is dead. Before `close`, on the event loop's thread."""
        if self._is_listening:
            self._is_listening = False
            self._pause()
            self._events_fd = -1
        self._alive = 0
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None

    async def conclude(self) -> PathsMoved:
        """Undo what is left of everything protected that appeared or was changed."""
        if (self._watch is None or self.calm) and not self.moved:
            return ()
        return await anyio.to_thread.run_sync(self._conclude)

    def _conclude(self) -> PathsMoved:
        with self._lock:
            for one in self.roots.bring_back() if self.roots is not None and self.moved else ():
                self._moved[one.path] = one.moved_to
                self._note_failure(one)
            # There is no watch if the sandbox was ended while this waited for the lock.
            moved = self._sweep_last(self._watch) if self._watch is not None else {}
            before = {**dict.fromkeys(self._seen), **self._moved}
            return self._relocated(tuple(sorted({**before, **moved}.items())))

    def _relocated(self, found: PathsMoved) -> PathsMoved:
        """Where that is now, after folders were moved. For a thread."""
        if self.roots is None or not self.moved:
            return found
        to = self.roots.moves()
        return tuple((to.told(path), kept and to.told(kept)) for path, kept in found)

    def _sweep_last(self, watch: Watch) -> dict[str, str | None]:
        for _ in range(_MOST_READS):
            self._seen.update(watch.appeared())
            if watch.read_all:
                break
        moved = [*watch.sweep()]
        if self.roots is not None and self.moved:
            watch.follow(self.roots.moves())
            moved += watch.sweep()
        for one in moved:
            self._note_failure(one)
        return {one.path: one.moved_to for one in moved}

    async def settle(self) -> PathsMoved:
        """As `conclude`, after a command that is not the last one to be watched."""
        watch = self._watch
        if watch is None or (self.calm and not self._moved):
            return ()
        watch.settle()
        found = await anyio.to_thread.run_sync(self._conclude)
        self._seen.clear()
        self._moved.clear()
        return found

    async def undo_planted(self, protected: tuple[plan.Protected, ...]) -> PathsMoved:
        """Between `conclude` and `warnings`: the user's folders that have become repositories.

        Afterwards `known_moved` tells whether a folder was moved by the end of the command."""
        warnings = self._warnings
        changed = warnings.changed() if warnings is not None else None
        moved = self.moved
        if warnings is None:
            return ()
        if moved:
            return await anyio.to_thread.run_sync(self._undo_where_moved, warnings, protected)
        if changed is None:
            return ()
        return await anyio.to_thread.run_sync(self._undo_planted, warnings, changed, protected)

    def _undo_planted(
        self, warnings: RunWarnings, changed: list[str], protected: tuple[plan.Protected, ...]
    ) -> PathsMoved:
        try:
            found = _undo_planted(warnings, changed, protected)
        except OSError:
            if not self.moved:
                raise
            found = ()
        return (*found, *self._undo_where_moved(warnings, protected)) if self.moved else found

    def _undo_where_moved(
        self, warnings: RunWarnings, protected: tuple[plan.Protected, ...]
    ) -> PathsMoved:
        found: dict[str, str | None] = {}
        roots = self.roots
        assert roots is not None
        self._follower = self._follower or roots.follower()

        def look() -> None:
            changed = warnings.changed()
            if changed is not None:
                now = tuple(moved_paths(protected, roots.moves()))
                found.update(_undo_planted(warnings, changed, now))

        self._follower.look(warnings.follow, look)
        return tuple(found.items())

    def rest(self) -> None:
        """After `conclude`: the command has ended."""
        self.on_moved = _unheard
        self._caches.release()
        if self._warnings is not None:
            self._warnings.rest()
        if self._watch is not None:
            self._watch.rest()

    def renew(self, nested: Repositories) -> None:
        """For the next command. PathChanged if a cache of the plan is gone."""
        self._caches.take()
        if self._warnings is None or not self._warnings.renew(nested):
            protected = self.spec.protected if self.spec is not None else ()
            self._warnings = RunWarnings(nested, protected) if nested.folders else None

    def warnings(self, *, killed: bool) -> list[str]:
        """What the result says beside `conclude`: git repositories, and what was not undone."""
        said = self.failures()
        if self.ended_for is not None and killed:  # otherwise it had ended by itself
            said.append(f"the command was ended, because {self.ended_for}")
        return said + (self._warnings.look() if self._warnings is not None else [])

    def failures(self) -> list[str]:
        """What was not undone, once."""
        failed, self._failed = self._failed, {}
        return [f"{named(path)} could not be put right: {why}" for path, why in failed.items()]

    def close(self) -> None:
        """Takes 5 to 20 ms if there is a watch, because the kernel waits until the inotify marks
        are unused."""
        with self._lock:
            watch, self._watch = self._watch, None
            if watch is not None:
                watch.close()
            self._release_roots()

    def _release_roots(self) -> None:
        self._caches.release()
        roots, self.roots = self.roots, None
        if roots is not None:
            roots.release()


def _undo_planted(
    warnings: RunWarnings, changed: list[str], protected: tuple[plan.Protected, ...]
) -> PathsMoved:
    found = warnings.planted(changed)
    if not any(found):
        return ()
    moved = undo_all(found, warnings.planned(protected))
    warnings.undone([one.path for one in moved])
    return tuple((one.path, one.moved_to) for one in moved)


def _nothing() -> None:
    """Before `start`."""


def _unheard(path: str, moved_to: str) -> None:
    """The result has it."""


NO_GUARD = Guard(None)
