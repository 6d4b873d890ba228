"""A protected git dir: what it was before the run, and what in it would make git run a program.

Names that git does not use in daily work must not appear; `HEAD`, `objects` and `refs` must stay,
since git looks for another repository without them; the index, HEAD and the state of an unfinished
operation are judged by their content.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator

from sandboxd.linux.openat import changed_error
from sandboxd.policy.data import git_work_names
from sandboxd.policy.data.protected_names import REBASE_STATE
from sandboxd.policy.plan import Protected
from sandboxd.workspace_guard import running_commands, snapshot
from sandboxd.workspace_guard.dirfd import (
    enter,
    find,
    is_gone,
    list_names,
    list_plain,
    open_folder,
    read_file,
    restore_mode,
    stat_at,
)
from sandboxd.workspace_guard.git import judge, worktree_states
from sandboxd.workspace_guard.git.head import GitHead
from sandboxd.workspace_guard.git.index_file import GitIndexFile
from sandboxd.workspace_guard.git.links import GitDirLinks, inner_offence
from sandboxd.workspace_guard.git.planned_git import PlannedGit
from sandboxd.workspace_guard.git.repository import harmful_worktrees
from sandboxd.workspace_guard.git.stored_links import StoredLinks
from sandboxd.workspace_guard.git.symbolic_refs import SymbolicRefs
from sandboxd.workspace_guard.moves import Moves
from sandboxd.workspace_guard.quarantine.quarantine import (
    Moved,
    Offence,
    Quarantine,
    Undo,
    bring_back,
    move_aside,
    put_back,
    put_back_below,
)
from sandboxd.workspace_guard.snapshot import Node, SnapshotBudget
from sandboxd_proto.locations import KEPT_FOLDER

_SMALL = 64 << 10
_DELETED = "what it held was deleted, and another folder is in its place"

# Git dirs with a running command, by device and inode, in the order of their starts.
_running: dict[tuple[int, int], list[GitDir]] = {}


class GitDir:
    """Changes are judged when a command ends. With overlapping commands the state before the first
    of them counts: otherwise one command's changes could count as the user's for another.
    """

    def __init__(self, root: int, one: Protected, planned: PlannedGit) -> None:
        self.path = one.path
        self._one = one
        self._root = root
        folder = open_folder(root, one.root, one.path)
        if folder is None:
            raise changed_error(one.path, "it is no folder any more")
        self._folder = folder
        status = os.fstat(folder)
        self._identity = status.st_dev, status.st_ino
        elder: GitDir | None = next(iter(_running.get(self._identity, ())), None)
        self._head: GitHead = GitHead(folder, one.path, elder._head if elder is not None else None)
        self._held: dict[str, int] = {}
        self._planned = planned
        self._is_doubtful = all(
            map(running_commands.may_be_made, (one.path, os.path.dirname(one.path)))
        )
        self._worktrees_made = False
        try:
            self._remember(elder)
        except BaseException:
            self.close()
            raise

    def _remember(self, elder: GitDir | None) -> None:
        self._mode = os.fstat(self._folder).st_mode
        plain = list_plain(self._folder) or {}
        self._names = frozenset(plain)
        self._links = GitDirLinks(self._folder, self.path, plain)
        self._stored = StoredLinks(self._folder, self.path)
        self._symbolic = SymbolicRefs(self._folder, self.path)
        budget = SnapshotBudget(entries=2000, bytes=4 << 20)
        kept = (*REBASE_STATE, *git_work_names.STATE_FILES)
        self._before: dict[str, Node] = {
            name: snapshot.keep(self._folder, name, budget) for name in kept if name in self._names
        }
        for name in git_work_names.NEEDED_FOLDERS:
            fd = enter(self._folder, name) if name in self._names else None
            if fd is not None:
                self._held[name] = fd
        index = elder._index if elder is not None else None
        self._index: GitIndexFile = GitIndexFile(self._folder, self.path, self._planned, index)
        self._alternates = {name: self._kept_small(name) for name in git_work_names.ALTERNATES}
        if elder is not None:
            self._names, self._before = elder._names, elder._before
            self._alternates = elder._alternates

    def follow(self, moves: Moves) -> None:
        """Folders were moved: what the index leads to is looked for where it is now."""
        self._planned = self._planned.followed(moves)
        self._index.follow(moves.told(self.path), self._planned)

    def begin(self) -> None:
        """A command starts."""
        _running.setdefault(self._identity, []).append(self)

    def rest(self) -> None:
        """The command has ended, and its changes were judged."""
        others = [one for one in _running.pop(self._identity, ()) if one is not self]
        if others:
            _running[self._identity] = others

    @property
    def unchanged(self) -> bool:
        if self._worktrees_made or any(name in self._before for name in REBASE_STATE):
            return False  # their files may be written where they are
        return (
            self._index.unchanged
            and self._head.unchanged
            and self._stored.unchanged
            and self._symbolic.unchanged
            and all(map(self._is_same_alternate, git_work_names.ALTERNATES))
        )

    def _kept_small(self, name: str) -> Node | None:
        try:
            return snapshot.keep(self._folder, name, SnapshotBudget(entries=1, bytes=_SMALL))
        except OSError:
            return None

    def _is_same_alternate(self, name: str) -> bool:
        before = self._alternates[name]
        if before is None:
            return self._mode_of(name) is None
        return snapshot.same(self._folder, name, before)

    @property
    def needs_thread(self) -> bool:
        return self._index.needs_thread

    @property
    def large(self) -> bool:
        return self._index.large

    def prepare(self) -> None:
        """The work that takes too long to do before a command starts."""
        self._index.prepare()

    def forget(self) -> None:
        """What was judged is judged by its content again."""
        self._index.forget()

    def look(self, *, finished: bool) -> list[Offence]:
        if finished:
            restore_mode(self._folder, self._mode)
        moved = self._moved_away()
        if moved is not None:
            return moved
        plain = list_plain(self._folder)
        if plain is None:
            return []  # without rights: `finished` restores them
        names = sorted(plain)
        found = [*self._strange(names, finished=finished)]
        found += self._incomplete(finished=finished)
        found += self._links.look(
            {name: kind for name, kind in plain.items() if self._is_written(name)},
            finished=finished,
        )
        found += self._head.judge()
        found += self._changed_alternates()
        found += self._index.judge(finished=finished)
        self._worktrees_made = any(map(self._is_made_worktrees, plain))
        if finished:
            found += self._operations(names)
            found += self._misleading_worktrees()
            undone = {one.path for one in found}
            stored = [*self._stored.look(), *self._symbolic.look()]
            found += [one for one in stored if one.path not in undone]
        return found

    def close(self) -> None:
        self.rest()
        self._head.close()
        for fd in (self._folder, *self._held.values()):
            os.close(fd)

    def _moved_away(self) -> list[Offence] | None:
        """None if it is in its place. One that another command made is not brought back."""
        if self.path == self._one.root:
            return None
        here = os.fstat(self._folder)
        with find(self._root, self._one.root, self.path) as entry:
            same = entry is not None and entry.path == self.path
            if same and entry is not None and entry.status.st_ino == here.st_ino:
                return None
            if entry is None and self._is_doubtful:
                return []
        undo = (
            put_back_below(self._root, self._one.root, self.path, None)
            if self._is_doubtful
            else bring_back(self._folder, self._root, self._one.root, self.path)
        )
        return [Offence(self.path, True, undo, "the git dir was replaced")]

    def _strange(self, names: list[str], *, finished: bool) -> Iterator[Offence]:
        """New names that git does not use in daily work, or that are no plain file or folder."""
        for name in names:
            path = os.path.join(self.path, name)
            if (
                name in self._names
                or name in git_work_names.SEPARATE
                or name.startswith(KEPT_FOLDER)
            ):
                continue
            if git_work_names.is_work(name):
                continue  # judged by its content
            if name in git_work_names.RUNS_AT_ONCE:
                yield Offence(path, True, move_aside(self._folder, name, path), "git runs it")
            elif self._one.rule == "bare_git_dir":
                continue
            elif finished or not git_work_names.is_transient(name):
                yield Offence(path, False, move_aside(self._folder, name, path), "a new name")

    def _mode_of(self, name: str) -> int | None:
        found = stat_at(self._folder, name)
        return found.st_mode if found is not None else None

    def _incomplete(self, *, finished: bool) -> Iterator[Offence]:
        """Names that a git dir must have: without them git looks for another repository."""
        for name, held in [*self._held.items()]:
            now = stat_at(self._folder, name)
            before = os.fstat(held)
            if now is not None and (now.st_ino, now.st_dev) == (before.st_ino, before.st_dev):
                continue
            path = os.path.join(self.path, name)
            if now is None or not stat.S_ISDIR(now.st_mode):
                yield Offence(path, True, self._folder_back(name, held), "git needs it")
            elif finished and before.st_nlink == 0:
                yield Offence(path, False, self._hold_new(name, Moved(path, None)), _DELETED)

    def _folder_back(self, name: str, held: int) -> Undo:
        path = os.path.join(self.path, name)
        back = bring_back(held, self._root, self._one.root, path)

        def undo(quarantine: Quarantine) -> Moved:
            moved = back(quarantine)
            if self._mode_of(name) is not None:
                return moved
            os.mkdir(name, 0o755, dir_fd=self._folder)
            return self._hold_new(name, moved)(quarantine)

        return undo

    def _hold_new(self, name: str, moved: Moved) -> Undo:
        """The folder there is another one: the content of the earlier one cannot be put back."""

        def undo(_: Quarantine) -> Moved:
            new = enter(self._folder, name)
            if new is not None:
                os.close(self._held[name])
                self._held[name] = new
            return Moved(moved.path, moved.moved_to, _DELETED)

        return undo

    def _is_written(self, name: str) -> bool:
        """Whether commands and git write there: also to worktrees that a command made."""
        return git_work_names.is_work(name) or self._is_made_worktrees(name)

    def _is_made_worktrees(self, name: str) -> bool:
        """They are read-only if they were there before."""
        return name == worktree_states.FOLDER and name not in self._names

    def _misleading_worktrees(self) -> list[Offence]:
        if not self._worktrees_made:
            return []
        return [
            inner_offence(self._folder, self.path, inner, "git would write or look elsewhere")
            for inner in worktree_states.misleading_worktrees(self._folder, self.path)
        ] + [
            inner_offence(self._folder, self.path, inner, "git would run a program there")
            for inner in harmful_worktrees(self._folder, self._planned)
        ]

    def _changed_alternates(self) -> Iterator[Offence]:
        for name in git_work_names.ALTERNATES:
            if not self._is_same_alternate(name):
                path = os.path.join(self.path, name)
                undo = put_back_below(self._folder, self.path, path, self._alternates[name])
                yield Offence(path, False, undo, "git would read another repository's settings")

    def _operations(self, names: list[str]) -> Iterator[Offence]:
        for name in names:
            if name not in REBASE_STATE and name not in git_work_names.STATE_FILES:
                continue
            before = self._before.get(name)
            if before is not None and snapshot.same(self._folder, name, before):
                continue
            if name in REBASE_STATE:
                reasons = self._judged_operation(name, before)
            else:
                data = read_file(self._folder, name, _SMALL)
                if data is None and is_gone(self._folder, name):
                    continue
                known = before.data if before is not None else None
                reasons = (
                    judge.judge_state_file(name, known, data)
                    if data is not None
                    else [f"{name} cannot be read"]
                )
            if reasons:
                path = os.path.join(self.path, name)
                yield Offence(path, False, put_back(self._folder, name, path, before), reasons[0])

    def _judged_operation(self, name: str, before: Node | None) -> list[str]:
        try:
            now = snapshot.keep(self._folder, name, SnapshotBudget(entries=5000, bytes=16 << 20))
        except FileNotFoundError:
            return []
        files = snapshot.plain_files(now)
        if files is None:
            return [f"{name} has entries that are no plain files"]
        known = snapshot.plain_files(before) if before is not None else None
        return judge.judge_operation_state(name, known, files)


class GitInfo:
    """The folder `info` of a git dir: only `info/refs` may be added."""

    def __init__(self, root: int, one: Protected) -> None:
        self._root = root
        self._one = one
        self._names = frozenset(self._list() or ())

    def _list(self) -> list[str] | None:
        folder = open_folder(self._root, self._one.root, self._one.path)
        if folder is None:
            return None
        try:
            return list_names(folder)
        finally:
            os.close(folder)

    @property
    def unchanged(self) -> bool:
        return True

    @property
    def needs_thread(self) -> bool:
        return False

    def look(self, *, finished: bool) -> list[Offence]:
        found: list[Offence] = []
        names = self._list()
        for name in names or ():
            if name not in self._names and not git_work_names.is_info_work(name):
                found.append(self._offence(os.path.join(self._one.path, name)))
        if names is None:
            with find(self._root, self._one.root, self._one.path) as entry:
                if entry is not None:  # a file, or a link
                    found.append(self._offence(entry.path))
        return found

    def _offence(self, path: str) -> Offence:
        def undo(quarantine: Quarantine) -> Moved:
            with find(self._root, self._one.root, path) as entry:
                return quarantine.take(entry) if entry is not None else Moved(path, None)

        return Offence(path, False, undo, "a new name in info")

    def close(self) -> None:
        """Nothing to close."""
