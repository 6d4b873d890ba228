"""Remove what killed daemons left behind, and caches of workspaces that no longer exist.

Runs once after the start, in a thread of its own. A folder that a daemon uses is locked; a folder
without a lock file was made by another program, and stays.
"""

from __future__ import annotations

import fcntl
import logging
import os
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from sandboxd.linux.removal import remove_tree
from sandboxd.linux.rootfs.private_folder import remove_stale
from sandboxd.policy.mounts import cache_notes
from sandboxd_proto.cache_locks import unused

log = logging.getLogger(__name__)
STATE_PREFIX = "sandboxd-state-"
LOCK = "lock"
YOUNG_S = 60.0  # a new folder is locked a moment after it is made


def collect_soon(caches_root: str) -> None:
    """In a thread: a huge tree of another user, or an error, must not delay the daemon."""
    with suppress(RuntimeError):  # no more threads for this user: left to the next start
        threading.Thread(target=collect, args=(caches_root,), name="leftovers", daemon=True).start()


def collect(caches_root: str) -> None:
    jobs: tuple[Callable[[], None], ...] = (
        remove_stale, collect_states, lambda: collect_caches(caches_root),
    )  # fmt: skip
    for job in jobs:
        try:
            job()
        except Exception:
            log.exception("leftovers could not be collected")


def collect_states(young_s: float = YOUNG_S) -> None:
    """State folders of dead daemons, in the places where this user can make them."""
    places = {tempfile.gettempdir()} | ({"/run"} if os.getuid() == 0 else set())
    for place in places:
        for path in _named(place, STATE_PREFIX):
            if _is_own_folder(path, young_s) and _is_dead(path):
                remove_tree(path)


def _named(place: str, prefix: str) -> list[str]:
    try:
        with os.scandir(place) as found:
            return [entry.path for entry in found if entry.name.startswith(prefix)]
    except OSError:
        return []


def _is_own_folder(path: str, young_s: float) -> bool:
    try:
        status = os.lstat(path)
    except OSError:
        return False
    own = status.st_uid == os.getuid() and os.path.isdir(path) and not os.path.islink(path)
    return own and time.time() - status.st_ctime > young_s


def _is_dead(path: str) -> bool:
    """Whether its daemon's lock is free. False without a lock file."""
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        fd = os.open(os.path.join(path, LOCK), flags)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


def collect_caches(root: str) -> None:
    for folder, note in cache_notes.caches_of_gone_workspaces(root):
        with unused(folder) as is_unused:
            if is_unused and remove_tree(folder):
                log.info("%s was removed: its workspace does not exist", folder)
                with suppress(OSError):
                    os.unlink(note)
