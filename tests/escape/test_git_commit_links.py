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


PLACES = ["__pycache__", ".sandboxd-kept", ".sandboxd-kept-x", "new/.sandboxd-kept", "objects/ab"]
COMMIT_AT = """
    mkdir -p $place; mv evil $place; export GIT_INDEX_FILE=$PWD/index
    git read-tree HEAD; git update-index --add --cacheinfo 160000,$id,$place/evil
    git update-ref refs/heads/main $(git commit-tree -p HEAD -m two $(git write-tree))
    rm index; unset GIT_INDEX_FILE
"""


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("place", PLACES)
def test_in_a_folder_that_seems_to_hold_something_else(
    box: Box, project: Path, mark: Path, check_control: Callable[..., None], place: str, how: str
) -> None:
    lines = f"place={place}", MAKE, ARM["a setting"], ID, COMMIT_AT
    ran = run(box, how, project, mark, *lines)
    assert not runs(project, mark), ran.story
    check_control(*lines)


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("place", PLACES)
def test_armed_there_by_a_later_command(
    box: Box, project: Path, mark: Path, place: str, how: str
) -> None:
    """Nothing changes but a file of the git dir."""
    config = f"{place}/evil/.git/config"
    run(box, how, project, mark, f"place={place}", MAKE, ID, COMMIT_AT)
    assert (project / config).exists()
    arm = f"printf '[core] fsmonitor = \"touch %s; :\"\\n' $mark >> {config} || :"
    ran = run(box, how, project, mark, arm)
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


# Ordinary work in repositories of the command's own, one command after the other; `$up` is a
# repository with a submodule that the user has elsewhere.
WORK = (
    "git clone -q --recurse-submodules $up clone",
    "cd clone; git checkout -q -b topic; echo x > new; git add new; git commit -q -m second",
    "git -C clone pull -q --no-rebase origin main; git -C clone worktree add -q ../tree; "
    "git -C clone worktree add -q inside",
    "git -C clone submodule -q status; echo x > clone/sub/x; git -C clone/sub add x; "
    "git -C clone/sub commit -q -m third; git -C clone commit -q -a -m fourth",
    "git init -q made; git -C made commit -q --allow-empty -m x; git clone -q made again; "
    "git clone -q --bare made made.git; git init -q --separate-git-dir=apart apart-tree",
    "git clone -q --sparse made sparse; git clone -q --filter=blob:none file://$PWD/made partial",
    "git -C again pull -q; git -C again remote -v; git -C again push -q origin HEAD:refs/heads/y",
)


@pytest.mark.parametrize("how", ["cold", "persistent"])
def test_ordinary_work_in_new_repositories_goes_on(
    box: Box, project: Path, outside: Path, mark: Path, how: str
) -> None:
    library, up = make_repository(outside / "library"), make_repository(outside / "up")
    git(up, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", library, "sub")
    git(up, "commit", "-qm", "x")
    params = {"preset": "workspace-write", "workspace": str(project)}
    params["manifest"] = {"fs_read_allow": [str(outside)]}
    given = {**params, "cwd": str(project)}
    if how == "persistent":
        sandbox = box.connection.call("sandbox/create", params)["sandbox"]
        given = {"sandbox": sandbox, "cwd": str(project)}
    commands = ["\n".join((f"up={up}", line)) for line in WORK]
    if how == "cold":  # settings of a repository that was there before stay as they are
        commands = commands[:2] + commands[4:6]
    allow = (
        "export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=protocol.file.allow GIT_CONFIG_VALUE_0=always"
    )
    for line in commands:
        ran = box.shell(script(mark, "set -e", allow, line), **given)
        assert ran.exited(0), ran.story
        assert not is_reported(ran), ran.story
    assert not (project / ".sandboxd-kept").exists()
    assert git(project / "clone/sub", "status", "--short", "-b") != ""


def test_what_installers_write_is_moved_aside_and_the_rest_stays(
    box: Box, project: Path, outside: Path, mark: Path
) -> None:
    make_repository(outside / "up")
    lines = (
        f"git clone -q {outside}/up clone; cd clone; git config core.hooksPath .husky/_",
        "git config filter.lfs.clean 'git-lfs clean -- %f'; git config branch.main.rebase true",
        "cd .git; mkdir -p hooks info; echo x > hooks/pre-push; echo x > info/attributes",
        "echo x > hooks/a.sample",
    )
    params = {"preset": "workspace-write", "workspace": str(project)}
    manifest = {"fs_read_allow": [str(outside)]}
    ran = box.shell(script(mark, "set -e", *lines), manifest=manifest, **params)
    assert ran.exited(0), ran.story
    clone = project / "clone"
    names = {"config", "hooks/pre-push", "info/attributes"}
    found = {d["target"] for d in ran.denials if d["kind"] == "protected_path"}
    assert found == {f"{clone}/.git/{name}" for name in names}, ran.story
    assert git(clone, "remote", "get-url", "origin") == f"{outside}/up\n"
    assert git(clone, "config", "branch.main.rebase") == "true\n"
    assert git(clone, "config", "branch.main.merge") == "refs/heads/main\n"
    assert git(clone, "config", "core.hooksPath", check=False) == ""
    assert git(clone, "config", "filter.lfs.clean", check=False) == ""
    assert git(clone, "status", "--short") == ""
    assert (clone / ".git/hooks/a.sample").exists()
    assert [one.stat().st_uid for one in clone.glob(".git/config")] == [clone.stat().st_uid]
    kept = [one.name for one in (project / ".sandboxd-kept").glob("*/*")]
    assert sorted(one.partition("-")[2] for one in kept) == sorted(
        "clone%2F%2Egit%2F" + name.replace("/", "%2F") for name in names
    )


def test_where_no_repository_is_around_it_is_only_named(
    box: Box, workspace: Path, mark: Path
) -> None:
    ran = run(box, "cold", workspace, mark, MAKE, ARM["a setting"])
    assert not is_reported(ran), ran.story
    assert f"a git repository in {workspace}/evil: look at" in " ".join(ran.raw["warnings"])
    mark.unlink(missing_ok=True)
    git(workspace / "evil", "status")
    assert mark.exists()


def test_those_beyond_the_number_that_is_judged_are_moved(box: Box, project: Path) -> None:
    make = "git init -q a; for i in $(seq 520); do mkdir -p n$i; cp -r a/.git n$i; done"
    ran = attack(box, "cold", project, ("sh", "-ec", make))
    assert ran.exited(0), ran.story
    assert len(list(project.glob("*/.git"))) == 512
