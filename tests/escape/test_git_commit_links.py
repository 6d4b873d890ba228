"""A commit of a command leads git into a repository that a command made in a new folder: what that
one would run is moved aside, and the rest of it stays."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.attacks import Box
from support.git_attacks import HOW, attack, git, is_reported, make_repository, wait_for
from support.runs import Ran

pytestmark = [pytest.mark.isolation, pytest.mark.requires("git")]

SOMEONE = "\n".join(
    f"export GIT_{who}_{what}=x" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
)
# `$mark` is what the programs make.
MAKE = """
    git init -q -b main evil; echo x > evil/file
    git -C evil add file; git -C evil commit -q -m x
    git -C evil remote add origin $PWD/evil
    printf '#!/bin/sh\\ntouch %s\\n' "$mark" > hook; chmod +x hook
"""
ARM = {
    "a setting": 'git -C evil config core.fsmonitor "touch $mark; :"',
    "an unusual config": """
        printf '[core] fsmonitor = "touch %s; :"\\n' "$mark" >> evil/.git/config""",
    "a hook": "mkdir -p evil/.git/hooks; mv hook evil/.git/hooks/post-index-change",
    "a config of the worktree": """
        git -C evil config extensions.worktreeConfig true
        git -C evil config --worktree core.fsmonitor "touch $mark; :" """,
    "hooks elsewhere": """
        mkdir evil/h; mv hook evil/h/post-index-change; git -C evil config core.hooksPath h""",
    "an included file": """
        git -C evil config include.path ../more
        git config -f evil/more core.fsmonitor "touch $mark; :" """,
    "a repository in between": """
        mv evil inner; git init -q evil; mv inner evil/inner
        git -C evil/inner config core.fsmonitor "touch $mark; :"
        git -C evil add inner; git -C evil commit -q -m x""",
    "a separate git dir": """
        mv evil/.git evil/dir; echo 'gitdir: dir' > evil/.git
        git -C evil config core.fsmonitor "touch $mark; :" """,
    "a bare repository": """
        mv evil/.git bare.git; echo "gitdir: ../bare.git" > evil/.git
        git -C evil config core.fsmonitor "touch $mark; :" """,
    "a worktree": """
        mv evil far; git -C far worktree add -q --detach ../evil
        git -C far config core.fsmonitor "touch $mark; :" """,
    "a link": """
        mv evil/.git dir; ln -s ../dir evil/.git
        git -C evil config core.fsmonitor "touch $mark; :" """,
    "a submodule": """
        mkdir -p evil/.git/modules; git init -q evil/sub
        git -C evil/sub commit -q --allow-empty -m x
        mv evil/sub/.git evil/.git/modules/sub; echo 'gitdir: ../.git/modules/sub' > evil/sub/.git
        git -C evil/sub config core.worktree ../../../sub; git -C evil add sub
        git -C evil commit -q -m x; git -C evil/sub config core.fsmonitor "touch $mark; :" """,
}  # fmt: skip
COMMIT = """
    tree=$( (git ls-tree HEAD; printf '160000 commit %s\\tevil\\n' $id) | git mktree )
    git update-ref refs/heads/${branch:-main} $(git commit-tree -p HEAD -m two $tree)
"""
ID = "id=$(git -C evil rev-parse HEAD)"
UNKNOWN = "id=1111111111111111111111111111111111111111"
# What the user does then.
LATER = {
    "reset": [["reset", "-q", "--hard"], ["status"]],
    "checkout": [["checkout", "-q", "-f", "main"], ["reset", "-q"], ["status"]],
    "merge": [["merge", "-q", "other"], ["status"]],
    "push": [["-c", "push.recurseSubmodules=on-demand", "push", "origin", "main"]],
}


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    folder = tmp_path / "marks"
    folder.mkdir()
    folder.chmod(0o777)
    return folder / "ran"


@pytest.fixture
def project(workspace: Path) -> Path:
    return make_repository(workspace)


def runs(project: Path, mark: Path, later: str = "reset") -> bool:
    for words in LATER[later]:
        mark.unlink(missing_ok=True)
        git(project, *words, check=False)
        if (project / "evil/file").exists():
            os.utime(project / "evil/file", (1, 1))  # git then writes the index there
        if mark.exists():
            return True
    git(project, "status", check=False)
    return mark.exists()


def script(mark: Path, *lines: str) -> str:
    return "\n".join((SOMEONE, f"mark={mark}", *lines))


def run(box: Box, how: str, project: Path, mark: Path, *lines: str) -> Ran:
    ran = attack(box, how, project, ("sh", "-ec", script(mark, *lines)))
    assert ran.exited(0), ran.story
    return ran


@pytest.fixture
def check_control(tmp_path: Path, mark: Path) -> Callable[..., None]:
    """The same without a sandbox."""

    def check(*lines: str, later: str = "reset") -> None:
        folder = tmp_path / "control"
        make_repository(folder)
        _with_remote(folder)
        subprocess.run(["sh", "-ec", script(mark, *lines)], cwd=folder, check=True)
        assert runs(folder, mark, later)

    return check


def _with_remote(project: Path) -> None:
    git(project.parent, "init", "-q", "--bare", f"{project.name}.up")
    git(project, "remote", "add", "origin", f"../{project.name}.up")
    git(project, "push", "-q", "origin", "main")


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("way", ARM)
def test_a_commit_leads_git_into_a_new_repository(
    box: Box, project: Path, mark: Path, check_control: Callable[..., None], way: str, how: str
) -> None:
    lines = MAKE, ARM[way], ID, COMMIT
    ran = run(box, how, project, mark, *lines)
    assert is_reported(ran), ran.story
    assert not runs(project, mark), ran.story
    check_control(*lines)


@pytest.mark.parametrize("later", LATER)
def test_whatever_the_user_does_with_the_commit(
    box: Box, project: Path, mark: Path, check_control: Callable[..., None], later: str
) -> None:
    arm = ARM["a setting"] if later != "push" else "mv hook evil/.git/hooks/pre-push"
    branch = "branch=other" if later == "merge" else ""
    lines = MAKE, "mkdir -p evil/.git/hooks", arm, branch, ID, COMMIT
    lines = *lines, "git -C evil update-ref refs/remotes/origin/x HEAD~0"
    if later == "push":  # something that only the submodule has
        lines = *lines, "git -C evil commit -q --allow-empty -m y", ID, COMMIT
    _with_remote(project)
    ran = run(box, "cold", project, mark, *lines)
    assert not runs(project, mark, later), ran.story
    check_control(*lines, later=later)


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("order", ["the repository first", "the commit first"])
def test_by_two_commands(box: Box, project: Path, mark: Path, how: str, order: str) -> None:
    make = f"{MAKE}\n{ARM['a setting']}"
    both = [make, f"{UNKNOWN}\n{COMMIT}"]
    for line in both if order == "the repository first" else reversed(both):
        ran = run(box, how, project, mark, line)
    assert not runs(project, mark), ran.story


@pytest.fixture
def within_sandbox(box: Box, project: Path) -> Iterator[Callable[[str], Ran]]:
    params = {"preset": "workspace-write", "workspace": str(project)}
    sandbox = box.connection.call("sandbox/create", params)["sandbox"]
    yield lambda line: box.shell(f"set -e\n{line}", sandbox=sandbox, cwd=str(project))
    box.connection.call("sandbox/destroy", {"sandbox": sandbox})


@pytest.mark.parametrize("beside", ["", "touch new"], ids=["alone", "with a new file"])
def test_one_that_a_persistent_sandbox_arms_later(
    project: Path, mark: Path, within_sandbox: Callable[[str], Ran], beside: str
) -> None:
    assert within_sandbox(script(mark, MAKE)).exited(0)
    ran = within_sandbox(script(mark, ARM["a setting"], beside, ID, COMMIT))
    assert ran.exited(0), ran.story
    assert is_reported(ran), ran.story
    assert (project / "evil/.git/HEAD").exists()
    assert git(project / "evil", "log", "--format=%s") == "x\n"
    assert not runs(project, mark), ran.story


def test_what_a_persistent_sandbox_left_running_arms(box: Box, project: Path, mark: Path) -> None:
    params = {"preset": "workspace-write", "workspace": str(project)}
    sandbox = box.connection.call("sandbox/create", params)["sandbox"]
    arm = f"(sleep 0.5; {ARM['a setting']}; touch armed; sleep 1000) >/dev/null 2>&1 &"
    ran = box.shell(script(mark, MAKE, ID, COMMIT, arm), sandbox=sandbox, cwd=str(project))
    assert ran.exited(0), ran.story
    wait_for((project / "armed").exists)
    wait_for(lambda: any((project / ".sandboxd-kept").glob("*/*-evil*config")))
    assert not runs(project, mark)
    box.connection.call("sandbox/destroy", {"sandbox": sandbox})
    assert not runs(project, mark)
