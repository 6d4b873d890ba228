"""A repository that one command made, with programs in it, and that a later one leads git into.

It was made when the workspace was no repository: otherwise it is disarmed (test_git_commit_links).
Its settings are protected from the later command, as those of the user's own are: that says nothing
about who made them. Where the workspace's own repository may run programs, and a submodule of the
user's may, git's daily work goes on.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.attacks import Box
from support.git_attacks import HOW, attack, git, is_reported, make_repository
from support.runs import Ran

pytestmark = [pytest.mark.isolation, pytest.mark.requires("git")]

# What a later command does, and the folder that the user then enters.
LATER = {
    "a link in the index": ("git add evil", "."),
    "a .git file": ("echo 'gitdir: ../evil/.git' > src/.git", "src"),
    "a worktree": ("git -C evil worktree add -q -b other ../empty", "empty"),
    "a worktree's link in the index": ("git -C evil worktree add -q x && git add evil/x", "."),
    "a repository in between": ("mv between src/between && git add src/between", "."),
}


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    folder = tmp_path / "marks"
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    return folder / "ran"


@pytest.fixture
def project(workspace: Path) -> Path:
    make_repository(workspace)
    for name in ("src", "empty"):
        (workspace / name).mkdir()
    return workspace


def run(box: Box, project: Path, line: str, how: str = "cold") -> Ran:
    named = "export GIT_AUTHOR_NAME=x GIT_AUTHOR_EMAIL=x GIT_COMMITTER_NAME=x GIT_COMMITTER_EMAIL=x"
    return attack(box, how, project, ("sh", "-c", f"set -e; {named}\n{line}"))


def runs(folder: Path, mark: Path, *words: str) -> bool:
    git(folder, *words, check=False)
    ran = mark.exists()
    mark.unlink(missing_ok=True)
    return ran


def harm(name: str, mark: Path) -> str:
    return (
        f"git init -q {name} && git -C {name} commit -q --allow-empty -m x && "
        f"git -C {name} config core.fsmonitor 'touch {mark}; :'"
    )


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("later", LATER)
def test_a_later_command_leads_git_there(
    box: Box, project: Path, mark: Path, how: str, later: str
) -> None:
    line, victim = LATER[later]
    between = "git init -q between && git -C between commit -q --allow-empty -m x"
    lines = between, harm("between/evil", mark), harm("evil", mark), "git -C between add evil"
    (project / ".git").rename(project.parent / "away")
    first = run(box, project, "\n".join(lines))
    (project.parent / "away").rename(project / ".git")
    assert first.exited(0), first.story
    assert runs(project / "evil", mark, "status")  # control
    ran = run(box, project, line, how)
    assert not runs(project / victim, mark, "status"), ran.story


def test_control_of_the_link(project: Path, mark: Path) -> None:
    git(project, "init", "-q", "evil")
    git(project / "evil", "commit", "-q", "--allow-empty", "-m", "x")
    git(project / "evil", "config", "core.fsmonitor", f"touch {mark}; :")
    git(project, "add", "evil")
    mark.unlink(missing_ok=True)
    assert runs(project, mark, "status")


def test_a_submodule_of_the_user_may_have_hooks(box: Box, project: Path, tmp_path: Path) -> None:
    """A branch with a link to it, and one without: git writes the link anew."""
    make_repository(tmp_path / "library")
    git(project, "branch", "without")
    git(project, "-c", "protocol.file.allow=always", "submodule", "add", "-q",
        str(tmp_path / "library"), "library")  # fmt: skip
    git(project, "commit", "-q", "-m", "second")
    hook = project / ".git/modules/library/hooks/post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\n")
    hook.chmod(0o755)
    git(project, "rm", "-q", "--cached", "library")
    ran = run(box, project, "git reset -q HEAD library && git ls-files -s library")
    assert ran.exited(0), ran.story
    assert ran.stdout.startswith("160000 ")
    assert git(project, "ls-files", "-s", "library").startswith("160000 ")
    assert not is_reported(ran), ran.story


@pytest.fixture
def user_settings(box: Box) -> Iterator[None]:
    """In the folder that the daemon's HOME names, which is not that of the user database."""
    path = box.daemon.home / ".gitconfig"
    path.write_text("[core]\n\thooksPath = .githooks\n")
    yield
    path.unlink()


PLACES = {"the workspace": ".", "a folder of it": "src", "a repository in it": "nested"}


@pytest.mark.usefixtures("user_settings")
@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("place", PLACES)
def test_hooks_that_the_users_settings_name_in_every_repository(
    box: Box, workspace: Path, mark: Path, how: str, place: str
) -> None:
    folder = PLACES[place]
    (workspace / "src").mkdir()
    if place == "a repository in it":
        make_repository(workspace / "nested")
    line = (
        f"[ -e {folder}/.git ] || git init -q {folder}; cd {folder}; mkdir .githooks; "
        f"printf '#!/bin/sh\ntouch {mark}\n' > .githooks/pre-commit; chmod +x .githooks/*"
    )
    ran = run(box, workspace, line, how)
    assert ran.exited(0), ran.story
    commit = ("-c", "core.hooksPath=.githooks", "commit", "-q", "--allow-empty", "-m", "x")
    assert not runs(workspace / folder, mark, *commit), ran.story
    assert is_reported(ran), ran.story
    # Control: nothing is left that would keep git from running it.
    git(workspace, "init", "-q", folder)
    hooks = workspace / folder / ".githooks"
    hooks.mkdir(exist_ok=True)
    (hooks / "pre-commit").write_text(f"#!/bin/sh\ntouch {mark}\n")
    (hooks / "pre-commit").chmod(0o755)
    assert runs(workspace / folder, mark, *commit)


@pytest.mark.usefixtures("user_settings")
@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("steps", [1, 2])
def test_hooks_that_the_users_settings_name_behind_a_link_of_the_index(
    box: Box, project: Path, mark: Path, how: str, steps: int
) -> None:
    """`git status` writes the index of the repository behind the link, which runs a hook."""
    make = (
        "git init -q evil; cd evil; echo x > file; git add file; git commit -q -m x; "
        f"mkdir .githooks; printf '#!/bin/sh\ntouch {mark}\n' > .githooks/post-index-change; "
        "chmod +x .githooks/*; cd .."
    )
    if steps == 1:
        ran = run(box, project, f"{make}; git add evil", how)
    else:
        ran = run(box, project, make, how)
        assert ran.exited(0), ran.story
        run(box, project, "git add evil", how)
    assert is_reported(ran), ran.story
    status = ("-c", "core.hooksPath=.githooks", "status")
    assert not runs(project, mark, *status), ran.story
    # The control: the git dir was moved aside.
    git(project, "rm", "-q", "-r", "--cached", "--ignore-unmatch", "evil")
    git(project, "init", "-q", "evil")
    git(project / "evil", "add", "file")
    git(project / "evil", "commit", "-q", "-m", "x")
    git(project, "add", "evil")
    os.utime(project / "evil/file", (1, 1))
    assert runs(project, mark, *status), "the control"


def test_a_worktree_in_a_folder_of_the_user_has_no_hooks_of_a_command(
    box: Box, project: Path, mark: Path
) -> None:
    git(project, "config", "core.hooksPath", ".githooks")
    line = (
        "git worktree add -q -b other empty; mkdir empty/.githooks; cd empty/.githooks; "
        f"printf '#!/bin/sh\ntouch {mark}\n' > pre-commit; chmod +x pre-commit"
    )
    ran = run(box, project, line)
    commit = ("commit", "-q", "--allow-empty", "-m", "x")
    assert not runs(project / "empty", mark, *commit), ran.story
    assert is_reported(ran)


def test_a_worktree_of_the_workspaces_own_repository_stays(box: Box, project: Path) -> None:
    hook = project / ".git/hooks/post-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\n")
    hook.chmod(0o755)
    ran = run(box, project, "git worktree add -q -b other empty")
    assert ran.exited(0), ran.story
    assert git(project / "empty", "status", "--short") == ""
    assert not is_reported(ran), ran.story
