"""What a result warns about: repositories that the command made, a main checkout that changed.

A linked worktree shares its git dir with the main checkout, whose index and HEAD cannot be
protected: the next commit there replaces a mounted file, and restoring the old content would undo
that commit.
"""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Iterable
from itertools import islice
from typing import NamedTuple

from sandboxd.platform.current import files
from sandboxd.policy.data.protected_names import OTHER_REPOSITORIES, WORKSPACE
from sandboxd.policy.display_names import named
from sandboxd.policy.plan import Protected
from sandboxd.policy.protected import distant_git
from sandboxd.policy.protected.nested_git import Repositories
from sandboxd.workspace_guard import running_commands
from sandboxd.workspace_guard.current_platform import is_led_into
from sandboxd.workspace_guard.git.planned_git import PlannedGit, planned_git
from sandboxd.workspace_guard.moves import Moves
from sandboxd.workspace_guard.repositories.new_repositories import (
    FoundRepositories,
    NewRepositories,
)
from sandboxd.workspace_guard.running_commands import Maker

MOST_NAMED = 20
_MOST_FILES = 8  # of a repository that are named
_MAIN_STATE = ("HEAD", "index")


class PlantedRepositories(NamedTuple):
    """Folders of the user that are git repositories now, and new `.hg` and the like in such
    folders, each by the writable root that they lie in. Not the roots themselves, for git.

    `new_git`: in new folders, where another repository may lead git into them."""

    git: dict[str, list[str]]
    others: dict[str, list[str]]
    new_git: dict[str, list[str]]


class RunWarnings:
    """Make it before the command starts."""

    def __init__(self, before: Repositories, protected: tuple[Protected, ...] = ()) -> None:
        self._protected = protected
        self._remember(before)

    def _remember(self, before: Repositories) -> None:
        self._before = before
        self._maker = Maker(before, self._protected)
        self._made: FoundRepositories | None = None
        self._named: dict[str, list[str]] = {}
        self._disarmed: frozenset[str] = frozenset()
        self._search = NewRepositories(before)
        self._states: dict[str, int] = {}
        if before.main_checkouts:
            self._states = {path: _time(path) for path in self._main_states()}

    def _main_states(self) -> list[str]:
        return [posixpath.join(f, n) for f in self._before.main_checkouts for n in _MAIN_STATE]

    def follow(self, moves: Moves) -> None:
        """Folders were moved: they are looked at where they are now."""
        self._search.follow(moves)
        self._before = self._search.before
        self._protected = tuple(running_commands.moved_paths(self._protected, moves))
        self._maker.follow(self._before, moves)
        self._states = {moves.told(path): time for path, time in self._states.items()}

    def renew(self, before: Repositories) -> bool:
        """For another command, if the folders are the same."""
        if before is not self._before and before != self._before:
            return False
        self._remember(before)
        return True

    def planned(self, protected: Iterable[Protected]) -> PlannedGit:
        return planned_git(protected, self._before.git_homes, self._before.roots)

    def begin(self) -> None:
        """The command starts, in a sandbox of its own."""
        running_commands.enter(self._maker)

    def rest(self) -> None:
        running_commands.leave(self._maker)

    def changed(self) -> list[str] | None:
        """After the command: for `planted`; None if that would find nothing."""
        return self._search.changed()

    def planted(self, changed: Iterable[str]) -> PlantedRepositories:
        """Before `look`. For a thread."""
        self._made = made = self._search.find(changed)
        if not self._maker.is_running:  # in a persistent sandbox
            made.git = [one for one in made.git if not running_commands.is_users_own(one)]
            made.others = [one for one in made.others if not running_commands.is_users_own(one)]
            again = [*filter(running_commands.is_in_new_folder, made.git)]
            made.git = [one for one in made.git if one not in again]
            made.new_git += again
        by_root, roots = self._before.by_root, self._before.roots
        new = [one for one in made.new_git if one not in roots]
        running_commands.note_new_folders(new)
        new = [*filter(is_led_into, new)]
        self._disarmed = frozenset(new)
        if not self._maker.is_running:  # the persistent sandbox's own look disarms them
            new = []
        found = PlantedRepositories(by_root(made.git), by_root(made.others), by_root(new))
        self._tell_plans(made)
        named_first = (*sorted(made.git)[:MOST_NAMED], *sorted(made.new_git)[:MOST_NAMED])
        named = (one for one in named_first if one not in roots)
        self._named = {folder: _protected_in(folder) for folder in named}
        return found

    def _tell_plans(self, made: FoundRepositories) -> None:
        """Those far down are protected from the next command on."""
        if self._before.distant:
            others = map(posixpath.dirname, (*made.others, *made.new_others))
            folders = {*made.git, *made.new_git, *others}
            for root, found in self._before.by_root(folders).items():
                distant_git.add_repositories(root, found)

    def undone(self, paths: Collection[str]) -> None:
        gone = set(map(posixpath.dirname, paths)) | set(paths)
        if self._made is not None:
            self._made.git = [one for one in self._made.git if one not in gone]

    def look(self) -> list[str]:
        """Sentences for the result."""
        made, self._made = self._made, None
        said = self._said(made) if made is not None else []
        if self._states:
            changed = [path for path, before in self._states.items() if _time(path) != before]
            said += map(_changed_main, changed)
        return said

    def _said(self, made: FoundRepositories) -> list[str]:
        # Not those that were moved aside.
        git = [*sorted(made.git), *sorted(filter(_is_repository, made.new_git))]
        others = [*sorted(filter(files.lexists, made.others)), *sorted(made.new_others)]
        said = [
            _made_repository(one, self._named.get(one, []), disarmed=one in self._disarmed)
            for one in git[:MOST_NAMED]
        ]
        said += map(_made_other, others[:MOST_NAMED])
        more = max(len(git) - MOST_NAMED, 0) + max(len(others) - MOST_NAMED, 0)
        said += [_made_more(more)] if more else []
        said += [] if made.complete else [_unsearched(self._before.roots[0])]
        said += map(_opened, islice(made.opened, MOST_NAMED))
        said += map(_closed, islice(made.closed, MOST_NAMED))
        return said


def _time(path: str) -> int:
    """0 where the system does not tell it, or it is gone."""
    try:
        return files.changed_ns(files.lstat(path))
    except OSError:
        return 0


def _protected_in(folder: str) -> list[str]:
    """Files of a new repository that would be protected in one that was there before, as they are
    in the roots."""
    return [one for one in sorted(WORKSPACE) if files.lexists(posixpath.join(folder, one))]


def _is_repository(folder: str) -> bool:
    return any(files.lexists(posixpath.join(folder, one)) for one in (".git", "HEAD"))


def _made_repository(folder: str, protected: list[str], *, disarmed: bool) -> str:
    text = f"there is now a git repository in {named(folder)}: "
    text += (
        "its config and hooks run no programs"
        if disarmed
        else "look at its config and hooks before you run git there, or add it to another "
        "repository with git add"
    )
    if not protected:
        return text
    more = len(protected) - _MOST_FILES
    listed = ", ".join(protected[:_MOST_FILES]) + (f" and {more} more" if more > 0 else "")
    return (
        f"{text}. Look also, before you enter or open the folder, at what can run code then, or "
        f"later: {listed}"
    )


def _made_other(path: str) -> str:
    folder, name = posixpath.split(path)
    return (
        f"there is now a repository of {OTHER_REPOSITORIES[name]} in {named(folder)}: look at "
        f"the settings in its {name} before you run {OTHER_REPOSITORIES[name]} there"
    )


def _changed_main(path: str) -> str:
    return (
        f"{named(path)}, which belongs to the main checkout of this worktree, changed while the "
        "command ran: look at `git status` there unless you changed it yourself"
    )


def _made_more(count: int) -> str:
    return (
        f"there are {count} more repositories now: look for .git, .hg and the like in new "
        "folders before you run git there"
    )


def _unsearched(workspace: str) -> str:
    return (
        f"so many folders appeared that not all of {named(workspace)} were searched for "
        "new repositories: remove them, and look for a new .git, .hg and the like before you run "
        "git in the others"
    )


def _opened(folder: str) -> str:
    return (
        f"{named(folder)} was closed (chmod) while the command ran; it was opened again to look "
        "into it"
    )


def _closed(folder: str) -> str:
    return (
        f"{named(folder)} appeared or was closed (chmod) while the command ran, and it cannot be "
        "looked into: do not run git there before you have looked for a new .git, .hg and the like"
    )
