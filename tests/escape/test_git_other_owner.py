"""A daemon of root and a workspace of another user: commands run as that user, and git is safe."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from support.attacks import Box
from support.git_attacks import HOW, attack, git, make_repository
from support.users import as_user, open_to_others, unprivileged_user

pytestmark = pytest.mark.requires("root", "git")
# Each runs a program at the owner's next git command, or leaves one that root owns.
ATTACKS = {
    "a hook": "cp evil .git/hooks/post-checkout",
    "a setting": "git config core.fsmonitor ./evil",
    "a second config": "printf '[core]\\n\\tfsmonitor = ./evil\\n' > .git/config.worktree",
    "another git dir": "git init -q other; mv .git away; ln -s other/.git .git",
    "a folder": "git init -q src && cp evil src/.git/hooks/post-checkout",
    "the top folder": "git init -q --bare b; mv .git away; mv b/* .",
    "a worktree": "git worktree add -q w; echo $PWD/src/.git > .git/worktrees/w/gitdir",
}


@pytest.fixture
def theirs(workspace: Path) -> Path:
    owner = unprivileged_user()
    made = make_repository(workspace)
    (made / "src").mkdir()
    (made / "evil").write_text("#!/bin/sh\n")
    (made / "evil").chmod(0o755)
    subprocess.run(["chown", "-R", f"{owner.pw_uid}:{owner.pw_gid}", str(made)], check=True)
    open_to_others(made)
    return made


def state(repository: Path) -> tuple[object, ...]:
    kept = {
        path.relative_to(repository): path.read_bytes()
        for folder in ("hooks", "info")
        for path in (repository / ".git" / folder).rglob("*")
        if path.is_file()
    }
    names = [(repository / ".git" / name).exists() for name in ("config.worktree", "worktrees/w")]
    here = git(repository, "rev-parse", "--absolute-git-dir")
    there = git(repository / "src", "rev-parse", "--absolute-git-dir")
    config = repository / ".git/config"
    return kept, names, config.exists() and config.read_bytes(), here, there


@pytest.mark.parametrize("name", ATTACKS)
def test_the_owners_repository_stays_as_it_is(
    box: Box, theirs: Path, tmp_path: Path, name: str
) -> None:
    control = shutil.copytree(theirs, tmp_path / "control")
    subprocess.run(["chown", "-R", str(theirs.stat().st_uid), str(control)], check=True)
    unchanged = state(control)
    free = ["env", f"HOME={control}", "sh", "-c", ATTACKS[name]]
    subprocess.run([*as_user(unprivileged_user()), *free], cwd=control, check=True)
    assert state(control) != unchanged
    before = state(theirs)
    for how in HOW:
        ran = attack(box, how, theirs, ("sh", "-c", f"{ATTACKS[name]}; true"))
        assert state(theirs) == before, (how, ran.story)
    owner = unprivileged_user().pw_uid
    assert {path.lstat().st_uid for path in (theirs, *theirs.rglob("*"))} == {owner}


def checks_out(repository: Path) -> bool:
    """Whether the owner's git runs the hook in `x`. `~` is the owner's home, and not root's."""
    owner, mark = unprivileged_user(), repository / "ran"
    mark.unlink(missing_ok=True)
    words = ["env", f"HOME={owner.pw_dir}", "git", "-C", str(repository), "checkout", "-q", "main"]
    subprocess.run([*as_user(owner), *words], check=True, cwd="/")
    return mark.exists()


@pytest.mark.parametrize("is_there", [False, True])
@pytest.mark.parametrize("how", HOW)
def test_hooks_in_the_home_of_the_owner(
    box: Box, theirs: Path, tmp_path: Path, how: str, is_there: bool
) -> None:
    owner = unprivileged_user()
    above = os.path.relpath(theirs, owner.pw_dir)  # so that no test writes into a real home
    git(theirs, "config", "core.hooksPath", f"~/{above}/x")
    (theirs / "evil").write_text('#!/bin/sh\ntouch "$(git rev-parse --show-toplevel)/ran"\n')
    if is_there:
        (theirs / "x").mkdir()
    subprocess.run(["chown", "-R", f"{owner.pw_uid}:{owner.pw_gid}", str(theirs)], check=True)
    line = "mkdir -p x; cp evil x/post-checkout"
    ran = attack(box, how, theirs, ("sh", "-c", f"{line}; true"))
    assert not checks_out(theirs), ran.story
    subprocess.run([*as_user(owner), "sh", "-ec", line], cwd=theirs, check=True)
    assert checks_out(theirs)
