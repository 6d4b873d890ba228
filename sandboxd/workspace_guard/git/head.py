"""HEAD of a protected git dir, and the branch that it names: judged when either has changed.

Prompts and editors read both often. With an invalid HEAD git looks for another repository.
"""

from __future__ import annotations

import os
import stat

from sandboxd.workspace_guard import snapshot
from sandboxd.workspace_guard.dirfd import find, is_gone, nearest, open_root, read_file, stat_at
from sandboxd.workspace_guard.git import judge
from sandboxd.workspace_guard.quarantine.quarantine import Offence, Undo, put_back, put_back_below
from sandboxd.workspace_guard.snapshot import Node, SnapshotBudget

_SMALL = 64 << 10
_MOST_LINKS = 5
_NAME = "HEAD"


class GitHead:
    """Make it before the command starts. `folder` is the git dir's descriptor. `elder`: that of a
    command which runs already: what it was before that one counts if it is harmful now."""

    def __init__(self, folder: int, git_dir: str, elder: GitHead | None = None) -> None:
        self._folder = folder
        self._path = os.path.join(git_dir, _NAME)
        self._refs, self._refs_path = _open_common(folder, git_dir)
        now = self._keep(folder, _NAME)
        self._before: Node | None = None
        self._ref: tuple[str, Node | None] | None = None
        if elder is not None and self._judged(now):
            self._before, self._ref = elder._before, elder._ref
        else:
            self._before, self._ref = now, self._ref_of(now)

    def close(self) -> None:
        os.close(self._refs)

    @property
    def unchanged(self) -> bool:
        """Whether nothing was written to HEAD and its branch.

        What was judged harmless after a write counts as changed for ever: a mapping can be written
        again without a change of the file's times.
        """
        return self._before is None or (
            snapshot.is_untouched(self._folder, _NAME, self._before) and self._is_known_ref()
        )

    def judge(self) -> list[Offence]:
        return [] if self.unchanged else self._judged(self._keep(self._folder, _NAME))

    def _judged(self, now: Node | None) -> list[Offence]:
        reasons = ["HEAD is no plain file"]
        if now is not None and now.data is not None and now.kind == stat.S_IFREG:
            known = self._before.data if self._before is not None else None
            reasons = judge.judge_head(known, now.data)
        if reasons:
            undo = put_back(self._folder, _NAME, self._path, self._before)
            return [Offence(self._path, True, undo, reasons[0])]
        return self._judged_ref(now)

    def _is_known_ref(self) -> bool:
        """A branch without a file is in packed-refs; a file that appears is judged."""
        if self._ref is None:
            return True
        name, node = self._ref
        if node is None:
            return stat_at(self._refs, name) is None
        return snapshot.is_untouched(self._refs, name, node)

    def _ref_of(self, head: Node | None) -> tuple[str, Node | None] | None:
        """The file of the branch, below the folder of refs; None where HEAD names a commit."""
        data = head.data if head is not None and head.data is not None else b""
        if not data.startswith(b"ref:"):
            return None
        name = os.fsdecode(data[4:].strip())
        return name, self._keep(self._refs, name)

    def _judged_ref(self, head: Node | None) -> list[Offence]:
        data = head.data if head is not None and head.data is not None else b""
        for _ in range(_MOST_LINKS):
            if not data.startswith(b"ref:"):
                return []
            name = os.fsdecode(data[4:].strip())
            path = os.path.join(self._refs_path, name)
            with find(self._refs, self._refs_path, path) as entry:
                if entry is None or entry.is_dir:
                    return []
                found = read_file(entry.parent, entry.name, _SMALL)
                path = entry.path
                if found is None and is_gone(entry.parent, entry.name):
                    return []  # packed just now
            if found is None or judge.judge_ref(None, found):
                return [Offence(path, False, self._ref_back(path), "a branch that is no ref")]
            data = found
        return [Offence(path, False, self._ref_back(path), "HEAD leads round")]

    def _ref_back(self, path: str) -> Undo:
        known = self._ref
        same = known is not None and os.path.join(self._refs_path, known[0]) == path
        before = known[1] if known is not None and same else None
        return put_back_below(self._refs, self._refs_path, path, before)

    def _keep(self, folder: int, name: str) -> Node | None:
        try:
            return snapshot.keep(folder, name, SnapshotBudget(entries=1, bytes=_SMALL))
        except (OSError, ValueError):
            return None


def open_branches(folder: int, git_dir: str) -> int | None:
    """The folder that the branch of HEAD is in; None where there is none."""
    head = read_file(folder, _NAME, _SMALL) or b""
    if not head.startswith(b"ref:"):
        return None
    refs, refs_path = _open_common(folder, git_dir)
    try:
        path = os.path.join(refs_path, os.fsdecode(head[4:].strip()))
        parent, _, is_parent = nearest(refs, refs_path, path)
        if not is_parent:
            os.close(parent)
            return None
        return parent
    finally:
        os.close(refs)


def _open_common(folder: int, git_dir: str) -> tuple[int, str]:
    """Where branches are: for a linked worktree in the repository that it belongs to."""
    common = read_file(folder, "commondir", _SMALL)
    if common is not None:
        path = os.path.realpath(os.path.join(git_dir, os.fsdecode(common).strip()))
        try:
            return open_root(path), path
        except OSError:
            pass
    return os.dup(folder), git_dir
