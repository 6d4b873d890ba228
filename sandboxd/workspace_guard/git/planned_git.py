"""What a plan says about git, for those who judge a repository that a command made or changed."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from sandboxd.policy.plan import GIT_DIR_RULES, Protected
from sandboxd.workspace_guard.moves import Moves


class PlannedGit(msgspec.Struct, frozen=True):
    """`known`: git dirs that no command changes. That does not make them the user's: an earlier
    command may have made one. `git_homes`: those whose settings git follows. `writable`: where
    commands can make a repository."""

    known: frozenset[str] = frozenset()
    git_homes: tuple[str, ...] = ()
    writable: tuple[str, ...] = ()

    def followed(self, moves: Moves) -> PlannedGit:
        """With the places that folders were moved to."""
        return PlannedGit(
            self.known | {*moves.paths(self.known)},
            self.git_homes,
            tuple(dict.fromkeys((*self.writable, *moves.paths(self.writable)))),
        )


def planned_git(
    protected: Iterable[Protected], git_homes: tuple[str, ...], writable: Iterable[str]
) -> PlannedGit:
    known = frozenset(one.path for one in protected if one.rule in GIT_DIR_RULES)
    return PlannedGit(known, git_homes, tuple(writable))
