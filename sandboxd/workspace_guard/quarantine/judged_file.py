"""What was judged is undone."""

from __future__ import annotations

import logging
from collections.abc import Collection

from sandboxd.workspace_guard.quarantine.quarantine import JudgedFile, Moved, Quarantine

log = logging.getLogger(__name__)
_MOST_ROUNDS = 3


def undo(
    judged: JudgedFile, path: str, quarantine: Quarantine, only: Collection[str] | None = None, *,
    finished: bool,
) -> list[Moved]:  # fmt: skip
    """An unexpected exception in one of them is logged; the others are still judged."""
    try:
        return _undone(judged, quarantine, only, finished=finished)
    except Exception as error:
        log.exception("%s cannot be judged", path)
        return [Moved(path, None, str(error))]


def _undone(
    judged: JudgedFile, quarantine: Quarantine, only: Collection[str] | None, *, finished: bool
) -> list[Moved]:
    """Undoing one change may reveal others: a git dir that was moved back is judged again."""
    moved: list[Moved] = []
    for _ in range(_MOST_ROUNDS):
        found = [o for o in judged.look(finished=finished) if only is None or o.path in only]
        if not found:
            break
        for one in found:
            log.warning("%s is undone: %s", one.path, one.why)
            moved.append(one.undo(quarantine))
    return moved
