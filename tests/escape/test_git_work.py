"""The control of all that protects git dirs: a long day's work with git, and nothing is undone."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.attacks import Box
from support.git_attacks import HOW, attack, git, make_repository

pytestmark = [pytest.mark.isolation, pytest.mark.requires("git")]

DAY = """
set -e
export GIT_AUTHOR_NAME=t GIT_AUTHOR_EMAIL=t@e GIT_COMMITTER_NAME=t GIT_COMMITTER_EMAIL=t@e
export GIT_EDITOR=true GIT_SEQUENCE_EDITOR=true GIT_PAGER=cat
commit() { echo "$2" > "$1"; git add "$1"; git commit -qm "$1 $2"; }
step() { echo "$*"; }
step commit; commit a 1; commit a 2
step merge; git checkout -qb side HEAD~1; commit b 1; commit a 3
git checkout -q main; git merge -q side || { echo 4 > a; git add a; git commit -qm merged; }
step rebase; git checkout -qb topic HEAD~1; commit c 1; commit a 5
git rebase -q main || { echo 6 > a; git add a; git rebase --continue; }
git rebase -q -i HEAD~2; git rebase -q -x true HEAD~2
step cherry; git checkout -q main; git cherry-pick topic~1; git revert --no-edit HEAD
git cherry-pick topic || { echo 7 > a; git add a; git cherry-pick --continue; }
step stash; echo 8 > a; git stash -q; git stash pop -q; git stash -q; git stash drop -q
step bisect; git bisect start HEAD HEAD~3; git bisect run true; git bisect reset
step tag; git tag v1; git tag -a v2 -m v2; git notes add -m n; git notes append -m m
step am; git format-patch -q -1 -o patches; git reset -q --hard HEAD~1; git am -q patches/*.patch
step worktree; git worktree add -q trees/one; git worktree remove trees/one
step split; git update-index --split-index; commit a 9; git update-index --no-split-index
step index4; git update-index --index-version 4; commit a 10
step fetch; git fetch -q . main:copy; git branch -q -D copy
step submodule; (cd vendor/lib; commit x 1; git checkout -q -b work); git add vendor/lib
git commit -qm "submodule"
step gc; git pack-refs --all; git repack -adq; git gc -q; git update-server-info; git fsck
step reset; git reset -q --hard HEAD~1; git clean -qfd patches; git status
"""


@pytest.mark.parametrize("how", HOW)
def test_a_long_day_with_git(box: Box, workspace: Path, how: str) -> None:
    repository = make_repository(workspace)
    inner = make_repository(workspace / "vendor/lib")
    git(repository, "add", "vendor/lib")
    git(repository, "commit", "-q", "-m", "with a link")
    ran = attack(box, how, repository, ("sh", "-c", DAY))
    assert ran.exited(0), (ran.stdout, ran.stderr)
    # `git branch -D` tries to clean up in .git/config, and says that it cannot.
    assert {d["target"][-12:] for d in ran.denials} <= {"/.git/config"}, ran.story
    assert not list(repository.glob(".sandboxd-kept*"))
    assert git(inner, "log", "--format=%s").startswith("x 1\n")
    assert git(repository, "status", "--porcelain") in ("", " M vendor/lib\n")
