"""The /tmp that commands of one opened session share: a folder in the daemon's state for each user
that they run as, removed with the session. Its size is summed, because no file system of its own
limits it."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress

import anyio
from msgspec.structs import replace

from sandboxd.platform.current import files, system
from sandboxd.policy.plan import Identity, Plan, SharedTmp
from sandboxd.posix.descriptors import give_to
from sandboxd.supervisor.sessions.session import Session

MOST_PLANS = 64
MOST_ENTRIES = 1_000_000  # of one sum: more than these are too much, whatever their size
BEYOND = 1 << 62


class SessionTmps:
    """`folder`: makes a folder of this name in the daemon's state, which no sandbox can see."""

    def __init__(self, folder: Callable[[str], str]) -> None:
        self._root = folder("sessions")
        os.chmod(self._root, 0o711)

    def open(self, session: Session) -> None:
        """A random name: other users can enter the folder of root's daemon, so the session's id
        must not be in it."""
        path = os.path.join(self._root, os.urandom(16).hex())
        os.mkdir(path)
        os.chmod(path, 0o711)
        session.tmp = path

    def plan_with(self, session: Session, plan: Plan) -> Plan:
        """The plan with the session's /tmp; equal plans get equal sandboxes."""
        if session.tmp is None or plan.backend == "none":
            return plan
        known = session.tmp_plans.get(id(plan))
        if known is not None and known[0] is plan:
            return known[1]
        run_as = plan.sandbox.run_as
        uid, gid = (run_as.uid, run_as.gid) if run_as else system.effective_ids()
        shared = self._shared(session.tmp, uid, gid)
        made = replace(
            plan, sandbox=replace(plan.sandbox, shared_tmp=shared), asked=plan.asked | {"tmp_bytes"}
        )
        if len(session.tmp_plans) >= MOST_PLANS:
            session.tmp_plans.clear()
        session.tmp_plans[id(plan)] = (plan, made)
        return made

    def _shared(self, folder: str, uid: int, gid: int) -> SharedTmp:
        path = os.path.join(folder, str(uid))
        try:
            os.mkdir(path)
        except FileExistsError:
            pass
        else:
            os.chmod(path, 0o1777)
            if uid != system.user_id():
                give_to(path, uid, gid)
        return SharedTmp(path, Identity.of(os.lstat(path)))

    async def remove(self, session: Session) -> None:
        """Remove the folder, when no command of the session runs."""
        from sandboxd.linux.removal import remove_tree

        path, session.tmp = session.tmp, None
        session.tmp_plans.clear()
        if path is not None:
            await anyio.to_thread.run_sync(remove_tree, path)


def size_of(folder: str) -> int:
    """The bytes that files below a folder take. For a worker thread; links are not followed.
    A folder that its owner closed (mode 000) cannot be looked into."""
    total = seen = 0
    waiting = [folder]
    while waiting:
        with suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                seen += 1
                if seen > MOST_ENTRIES:
                    return BEYOND
                # An entry that vanishes must not end the sum.
                with suppress(OSError):
                    total += files.allocated_bytes(entry.stat(follow_symlinks=False))
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
    return total
