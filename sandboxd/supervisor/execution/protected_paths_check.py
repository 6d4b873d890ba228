"""What a command left of protected paths, looked at when its process tree is dead."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

import anyio

from sandboxd import event_loop
from sandboxd.concurrency.bounded_thread import run_within
from sandboxd.policy.plan import Plan
from sandboxd.supervisor.execution.lease import Lease
from sandboxd.supervisor.execution.timeout import KILL_GRACE_S
from sandboxd.types import Process
from sandboxd.workspace_guard.current_platform import remember_kept
from sandboxd.workspace_guard.guard import NO_GUARD, Guard, OnMoved, PathsMoved
from sandboxd.workspace_guard.repositories.stale_lock import remove_stale_lock
from sandboxd_proto.errors import Busy, SandboxdError
from sandboxd_proto.locations import KEPT_FOLDER

log = logging.getLogger(__name__)
LOCK_LOOK_S = 2.0


class ProtectedPathsCheck:
    """`appeared`: None until the workspace was looked at. `error`: why the run has no result.
    `lost`: why it ran with more than its plan allows."""

    def __init__(self, execution_id: str, plan: Plan, lease: Lease, started_at: float) -> None:
        self.appeared: PathsMoved | None = None
        self.error: SandboxdError | None = None
        self.lost: str | None = None
        self.warnings: list[str] = []
        self._id = execution_id
        self._plan = plan
        self._lease = lease
        self._started_at = started_at
        self._put_back: Callable[[], bool] | None = None
        self._unhear: Callable[[], None] | None = None
        if lease.guards is not None:
            self.guard = lease.guards.take(plan.sandbox, plan.nested)
        else:
            is_shared = lease.settle is not None
            self.guard = Guard(None, plan.nested, lease.roots) if is_shared else NO_GUARD

    @property
    def ends_with_command(self) -> bool:
        """Whether the sandbox is this command's own."""
        return self._lease.settle is None

    def hear_moved(self, hear: OnMoved) -> None:
        """`hear` is told what is moved aside while the command runs."""
        if self._lease.hear_moved is not None:
            self._unhear = self._lease.hear_moved(hear)
        elif self._lease.guards is not None:
            self.guard.on_moved = hear

    async def remember_kept(self) -> None:
        """Before `git clean`, which deletes what earlier runs moved aside."""
        if self._writable is not None:
            work = partial(remember_kept, self._writable)
            self._put_back = await run_within(LOCK_LOOK_S, work, None)

    async def settle_early(self) -> bool:
        """Whether the shared sandbox was ended because a protected path appeared in it."""
        self.appeared = (await self._lease.settle() if self._lease.settle else ()) or None
        return self.appeared is not None or self.guard.moved

    async def conclude(self, *, killed: bool) -> None:
        self.guard.stop()
        if not await self._mounts_answer():
            return
        if self._lease.settle is None:
            self.appeared = await self.guard.conclude()
            planted = await self._undo_planted()
        else:  # whose own looks undo it too: what they found is told by `settle`
            is_ended = self.guard.known_moved
            planted = await self._undo_planted() if not is_ended else ()
            self.appeared = self.appeared or await self._lease.settle()
            planted = await self._undo_planted() if is_ended else planted
        if self.guard.known_moved:
            planted = (*planted, *await self._look_where_moved())
        self.appeared = (*self.appeared, *planted)
        self.warnings += self.guard.warnings(killed=killed)
        self.warnings += self._lease.failures() if self._lease.failures is not None else ()
        if self._put_back is not None and await run_within(LOCK_LOOK_S, self._put_back, False):
            self.warnings.append(f"the command deleted {KEPT_FOLDER}; it was put back")
        if killed:
            await self._remove_stale_lock()

    async def _look_where_moved(self) -> PathsMoved:
        """Also what was moved during the looks."""
        roots = self.guard.roots
        if roots is None:
            return ()
        self.lost = roots.why
        found = await self._undo_planted()
        if self._lease.settle is not None:
            found = (*found, *await self._lease.settle())
        self.warnings += await anyio.to_thread.run_sync(roots.warnings)
        return found

    @property
    def _writable(self) -> str | None:
        """The workspace, where the command may write it."""
        workspace = self._plan.workspace
        given = any(g.path == workspace and g.access == "write" for g in self._plan.sandbox.grants)
        return workspace if given else None

    async def _undo_planted(self) -> PathsMoved:
        return await self.guard.undo_planted(self._plan.sandbox.protected)

    async def sweep(self, process: Process) -> None:
        """Remove what appeared of the protected paths of a command that has no result."""
        await event_loop.enter_task()
        with anyio.CancelScope(shield=True):
            process.kill()
            with anyio.move_on_after(KILL_GRACE_S), suppress(SandboxdError):  # it never started
                await process.wait()
            for path, moved_to in (*await self.guard.conclude(), *await self._undo_planted()):
                log.warning("protected path %s appeared; it is now %s", path, moved_to or "gone")

    def close(self) -> None:
        if self._unhear is not None:
            self._unhear()
        if self._lease.guards is not None:
            self._lease.guards.done(self.guard)
        elif self.guard is not NO_GUARD:
            self.guard.close()

    async def _mounts_answer(self) -> bool:
        """The workspace is checked only where its file system answers; otherwise the run fails."""
        plan, mounts = self._plan, self._lease.mounts
        if mounts.none:
            return True
        folders = (plan.workspace,) if plan.workspace is not None else ()
        protected = [one.path for one in plan.sandbox.protected]
        named = (*plan.absent_secrets, *(link.path for link in plan.mask_links))
        try:
            await mounts.answer(
                ("end", self._id), lambda: _look_at(*folders, *protected, *named),
                folders=folders, paths=named,
            )  # fmt: skip
        except Busy as silent:
            log.warning("%s: its protected paths cannot be checked", self._id)
            self.appeared = ()
            self.guard.unusable = True
            self.error = silent
            return False
        return True

    async def _remove_stale_lock(self) -> None:
        """Of a git that was killed with the command."""
        if self._writable is None:
            return
        work = partial(remove_stale_lock, self._writable, self._started_at)
        if await run_within(LOCK_LOOK_S, work, False):
            self.warnings.append("git was ended while it held the index; its lock was removed")


def _look_at(*paths: str) -> None:
    for path in paths:
        os.path.lexists(path)


def cleans(argv: Sequence[str]) -> bool:
    """Whether the command line runs `git clean`."""
    words = [part for word in argv[:64] for part in word[:4096].split()]
    return "clean" in words and any(word.rpartition("/")[2] == "git" for word in words)
