"""Repositories that are newer than a persistent sandbox: no mount keeps a command from them.

Those of the user stay, whatever they run, and no command leads git from them to its own programs.
What a command made elsewhere is not the user's, also if it is there when another one starts.
"""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from support.attacks import Box
from support.git_attacks import content, git, is_reported, make_repository, wait_for
from support.runs import Ran

pytestmark = [pytest.mark.isolation, pytest.mark.requires("git")]
SOMEONE = "\n".join(
    f"export GIT_{who}_{what}=x" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
)
# `$mark` is what the program makes; `src` is the user's repository, `evil` one of the command's.
EVIL = """
    git init -q $where
    git -C $where commit -q --allow-empty -m x
    git -C $where config core.fsmonitor "touch $mark; :"
"""
RECEIVES = """
    git init -q --bare up.git
    printf '#!/bin/sh\\ntouch %s\\n' "$mark" > up.git/hooks/pre-receive
    chmod +x up.git/hooks/pre-receive
"""
REBASE = """
    state=src/.git/rebase-merge; mkdir $state
    git -C src rev-parse HEAD | tee $state/onto > $state/orig-head
    echo refs/heads/main > $state/head-name
    echo "exec touch $mark" | tee $state/git-rebase-todo > $state/git-rebase-todo.backup
    touch $state/done $state/interactive; echo 1 | tee $state/msgnum > $state/end
"""
# What the command does, and what the user does then in `src`.
WAYS = {
    "a link in the index": (f"where=src/evil; {EVIL}\ngit -C src add evil", "status"),
    "another git dir": (
        f"where=evil; {EVIL}\nmv src/.git src/moved; echo 'gitdir: ../evil/.git' > src/.git",
        "status",
    ),
    "a rebase": (REBASE, "rebase --continue"),
    "a remote": (f"{RECEIVES}\ngit -C src remote set-url origin ../up.git", "push origin main"),
    "a branch's remote": (f"{RECEIVES}\ngit -C src config branch.main.remote ../up.git", "push"),
}


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    folder = tmp_path / "marks"
    folder.mkdir()
    folder.chmod(0o777)
    return folder / "ran"


@pytest.fixture
def project(workspace: Path) -> Path:
    make_repository(workspace)
    (workspace / "src").mkdir()
    return workspace


@pytest.fixture
def within_sandbox(box: Box, project: Path) -> Callable[..., Ran]:
    """A command in a persistent sandbox, which ends with the box."""
    params = {"preset": "workspace-write", "workspace": str(project)}
    sandbox = box.connection.call("sandbox/create", params)["sandbox"]
    return lambda line: box.shell(f"{SOMEONE}\n{line}", sandbox=sandbox, cwd=str(project))


def users_repository(folder: Path) -> Path:
    """With a program of the user's own."""
    make_repository(folder)
    git(folder, "remote", "add", "origin", "https://example.org/x")
    hook = folder / ".git/hooks/post-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\n")
    hook.chmod(0o755)
    return folder


def runs(folder: Path, mark: Path, words: str) -> bool:
    git(folder, "-c", "push.default=current", *words.split(), check=False)
    ran = mark.exists()
    mark.unlink(missing_ok=True)
    return ran


@pytest.mark.parametrize("way", WAYS)
def test_git_is_not_led_from_there(
    box: Box, project: Path, mark: Path, within_sandbox: Callable[..., Ran], way: str
) -> None:
    line, later = WAYS[way]
    users_repository(project / "src")
    ran = within_sandbox(f"set -e; mark={mark}\n{line}")
    assert ran.exited(0), ran.story
    assert is_reported(ran), ran.story
    mark.unlink(missing_ok=True)
    assert not runs(project / "src", mark, later), ran.story
    assert (project / "src/.git/hooks/post-commit").exists()
    assert git(project / "src", "log", "--format=%s") == "first\n"


@pytest.mark.parametrize("way", WAYS)
def test_control(project: Path, mark: Path, way: str) -> None:
    line, later = WAYS[way]
    users_repository(project / "src")
    script = f"{SOMEONE}\nmark={mark}\n{line}"
    subprocess.run(["sh", "-ec", script], cwd=project, check=True, capture_output=True)
    mark.unlink(missing_ok=True)
    assert runs(project / "src", mark, later)


# What git would read then, and what the command writes there.
REDIRECTS = {
    "no HEAD": ("HEAD", "echo nothing > src/.git/HEAD"),
    "a HEAD that names a file of the git dir": (
        "HEAD",
        "echo 'ref: hooks/pre-commit' > src/.git/HEAD",
    ),
    "HEAD replaced": ("HEAD", "echo nothing > h; mv h src/.git/HEAD"),
    "other objects": (
        "objects/info/alternates",
        "git init -q evil; echo ../../../evil/.git/objects > src/.git/objects/info/alternates",
    ),
}


@pytest.mark.parametrize("way", REDIRECTS)
def test_head_and_alternates_of_it_stay(
    project: Path, within_sandbox: Callable[..., Ran], way: str
) -> None:
    name, line = REDIRECTS[way]
    src = users_repository(project / "src")
    path = src / ".git" / name
    before = content(path)
    ran = within_sandbox(f"set -e; {line}")
    assert ran.exited(0), ran.story
    assert is_reported(ran), ran.story
    assert content(path) == before, ran.story
    assert git(src, "rev-parse", "--show-toplevel") == f"{src}\n"
    assert git(src, "log", "--format=%s") == "first\n"
    subprocess.run(["sh", "-ec", line], cwd=project, check=True)  # the control
    assert content(path) != before


def test_daily_work_in_one_that_runs_programs(
    project: Path, within_sandbox: Callable[..., Ran]
) -> None:
    src = users_repository(project / "src")
    lines = (
        "cd src; echo x > new; git add new; git commit -q -m second; git checkout -q -b other",
        "echo y > new; git stash -q; git stash pop -q; git commit -q -a -m third",
        "git rebase -q -x true HEAD~1; git branch -q -u main; git worktree add -q ../tree main",
        "sleep 0.6",  # the clock looks meanwhile
    )
    ran = within_sandbox("set -e; " + "; ".join(lines))
    assert ran.exited(0), ran.story
    assert not is_reported(ran), ran.story
    assert git(src, "log", "--format=%s") == "third\nsecond\nfirst\n"
    assert (src / ".git/hooks/post-commit").exists()


MADE_ELSEWHERE = {
    "a git dir": (f"where=src; {EVIL}", "src/.git"),
    "a .git file": (
        f"where=evil; {EVIL}\nmv evil/.git src/dir; echo 'gitdir: dir' > src/.git",
        "src/.git",
    ),
    "hg": ("mkdir src/.hg; printf '[hooks]\\npre-status = x\\n' > src/.hg/hgrc", "src/.hg/hgrc"),
}


@pytest.mark.parametrize("how", ["cold", "persistent"])
@pytest.mark.parametrize("kind", MADE_ELSEWHERE)
def test_what_a_running_command_made_is_not_the_users(
    box: Box, project: Path, mark: Path, within_sandbox: Callable[..., Ran], kind: str, how: str
) -> None:
    """For another command, that starts meanwhile: it is undone when the first one ends, and does
    not come back."""
    line, name = MADE_ELSEWHERE[kind]
    path = project / name
    elsewhere = Box(box.backend, box.daemon)
    params = {"preset": "workspace-write", "workspace": str(project)}
    script = (
        f"{SOMEONE}\nmark={mark}\n{line}\ntouch made; while ! [ -e go-on ]; do sleep 0.05; done"
    )
    command = threading.Thread(target=lambda: elsewhere.shell(script, **params))
    command.start()
    wait_for((project / "made").exists)
    assert path.exists()
    second = "touch go-on; sleep 3"  # the clock looks meanwhile
    ran = within_sandbox(second) if how == "persistent" else box.shell(second, **params)
    command.join()
    elsewhere.close()
    assert not path.exists(), ran.story
