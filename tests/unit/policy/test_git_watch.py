"""What git itself does in a workspace is left alone; what would run code later is not."""

from __future__ import annotations

import os
import select
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from sandboxd.policy.protected import paths as protected_paths
from sandboxd.workspace_guard.watch.absent_paths import AbsentPathsWatch

Git = Callable[..., str]
Watch = Callable[[Path], AbsentPathsWatch]


@pytest.fixture
def watch() -> Iterator[Watch]:
    with ExitStack() as stack:
        yield lambda workspace: stack.enter_context(
            AbsentPathsWatch(protected_paths.for_workspace(str(workspace), ()).protected)
        )


def seen(watch: AbsentPathsWatch) -> list[str]:
    found: list[str] = []
    while select.select([watch], [], [], 0)[0]:
        found += watch.appeared()
    return found


def swept(watch: AbsentPathsWatch) -> set[str]:
    return {moved.path for moved in watch.sweep() if moved.moved_to}


def commit(git: Git, folder: Path, name: str) -> None:
    (folder / name).write_text(name)
    git(folder, "add", name)
    git(folder, "commit", "-q", "-m", name)


def test_everyday_git_alarms_nobody(repository: Path, watch: Watch, git: Git) -> None:
    one = watch(repository)
    commit(git, repository, "a")
    git(repository, "checkout", "-q", "-b", "side", "HEAD~1")
    commit(git, repository, "b")
    git(repository, "rebase", "-q", "main")
    git(repository, "checkout", "-q", "main")
    git(repository, "merge", "-q", "--no-ff", "-m", "m", "side")
    git(repository, "stash", "list")
    git(repository, "tag", "v1")
    git(repository, "gc", "-q")
    git(repository, "worktree", "add", "-q", "-b", "tree", "trees/one")
    assert seen(one) == []
    assert swept(one) == set()


def test_git_init_in_the_workspace_is_left_alone(workspace: Path, watch: Watch, git: Git) -> None:
    one = watch(workspace)
    git(workspace, "init", "-q")
    git(workspace, "config", "user.email", "me@example.org")
    git(workspace, "remote", "add", "origin", "https://example.org/x.git")
    (workspace / ".git" / "hooks").mkdir(exist_ok=True)
    (workspace / ".git" / "hooks" / "pre-commit.sample").write_text("")
    commit(git, workspace, "a")
    assert seen(one) == []
    assert swept(one) == set()
    assert git(workspace, "log", "--oneline")


@pytest.mark.parametrize(
    ("name", "text", "door"),
    [
        ("hooks/pre-commit", "#!/bin/sh\n", "hooks"),
        ("config", "[core]\n\tfsmonitor = ./evil\n", "config"),
        ("commondir", "../x", "commondir"),
        ("config.worktree", "[core]\n\tbare = false\n", "config.worktree"),
        ("modules/x/config", "", "modules"),
    ],
)
def test_a_new_repository_that_would_run_code_is_noticed(
    name: str, text: str, door: str, workspace: Path, watch: Watch, git: Git
) -> None:
    one = watch(workspace)
    git(workspace, "init", "-q")
    assert seen(one) == []
    path = workspace / ".git" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    assert seen(one) == [f"{workspace}/.git/{door}"]
    assert swept(one) == {f"{workspace}/.git/{door}"}
    assert (workspace / ".git" / "HEAD").exists()


def test_a_new_repository_made_at_once_is_noticed(workspace: Path, watch: Watch) -> None:
    one = watch(workspace)
    (workspace / "x" / "hooks").mkdir(parents=True)
    (workspace / "x" / "hooks" / "post-checkout").write_text("")
    (workspace / "x").rename(workspace / ".git")
    assert seen(one) == [f"{workspace}/.git/hooks"]


@pytest.mark.parametrize("kind", ["file", "link"])
def test_a_git_dir_elsewhere_is_moved_aside(kind: str, workspace: Path, watch: Watch) -> None:
    one = watch(workspace)
    (workspace / "evil").mkdir()
    if kind == "file":
        (workspace / ".git").write_text("gitdir: evil\n")
    else:
        (workspace / ".git").symlink_to("evil")
    assert seen(one) == [f"{workspace}/.git"]
    assert swept(one) == {f"{workspace}/.git"}


def test_a_repository_in_a_subfolder_is_left_alone(
    repository: Path, watch: Watch, git: Git
) -> None:
    one = watch(repository)
    git(repository, "clone", "-q", ".", "sub/clone")
    (repository / "sub" / "clone" / ".git" / "hooks").mkdir(exist_ok=True)
    (repository / "sub" / "clone" / ".git" / "hooks" / "pre-commit").write_text("")
    assert seen(one) == []
    assert swept(one) == set()


def todo(repository: Path, text: str, folder: str = "rebase-merge") -> Path:
    state = repository / ".git" / folder
    state.mkdir(exist_ok=True)
    (state / "git-rebase-todo").write_text(text)
    return state


@pytest.mark.parametrize("line", ["exec evil", "x evil", "  exec\tevil", "pick a\nx evil\n"])
def test_a_rebase_left_behind_with_an_exec_line_is_moved_aside(
    line: str, repository: Path, watch: Watch
) -> None:
    one = watch(repository)
    state = todo(repository, line)
    assert seen(one) == []
    assert swept(one) == {str(state)}


@pytest.mark.parametrize("text", ["", "pick abc exec x\n# exec evil\n", "edit abc\n"])
def test_a_rebase_without_exec_lines_may_be_left_behind(
    text: str, repository: Path, watch: Watch
) -> None:
    one = watch(repository)
    todo(repository, text)
    assert swept(one) == set()


def test_the_users_own_unfinished_rebase_is_kept_unless_it_gains_exec_lines(
    repository: Path, watch: Watch
) -> None:
    todo(repository, "exec make test\npick a\nexec make test\n")
    one = watch(repository)
    todo(repository, "exec make test\n")
    assert swept(one) == set()
    state = todo(repository, "exec make test\nexec evil\n")
    assert swept(one) == {str(state)}


def test_a_todo_that_cannot_be_read_as_a_file_is_moved_aside(
    repository: Path, watch: Watch
) -> None:
    one = watch(repository)
    state = repository / ".git" / "rebase-merge"
    state.mkdir()
    (state / "git-rebase-todo").symlink_to("/etc/passwd")
    (repository / ".git" / "sequencer").symlink_to("..")
    (repository / ".git" / "rebase-apply").mkdir()
    os.mkfifo(repository / ".git" / "rebase-apply" / "git-rebase-todo")
    names = ("rebase-merge", "sequencer", "rebase-apply")
    assert swept(one) == {f"{repository}/.git/{name}" for name in names}


BRANCHES = {
    "garbage": lambda path: path.write_text("not a commit\n"),
    "empty": lambda path: path.write_text(""),
    "out of refs": lambda path: path.write_text("ref: ../../evil\n"),
    "round": lambda path: path.write_text("ref: refs/heads/main\n"),
    "a link": lambda path: (path.unlink(), path.symlink_to("/etc/hostname")),
    "a pipe": lambda path: (path.unlink(), os.mkfifo(path)),
    "renamed over": lambda path: (
        (path.parent / "x").write_text("x"),
        (path.parent / "x").rename(path),
    ),
}


@pytest.mark.parametrize("way", BRANCHES)
def test_the_branch_of_head_is_judged_while_head_stays(
    repository: Path, watch: Watch, git: Git, way: str
) -> None:
    commit(git, repository, "a")
    head = git(repository, "rev-parse", "HEAD")
    branch = repository / ".git/refs/heads/main"
    one = watch(repository)
    BRANCHES[way](branch)
    assert not one.calm
    assert seen(one) == [str(branch)]
    assert swept(one) == {str(branch)}
    assert git(repository, "rev-parse", "HEAD") == head


def test_the_branch_of_a_worktree_is_judged(
    repository: Path, watch: Watch, git: Git, tmp_path: Path
) -> None:
    commit(git, repository, "a")
    git(repository, "worktree", "add", "-q", "-b", "side", str(tmp_path / "tree"))
    branch = repository / ".git/refs/heads/side"
    one = watch(tmp_path / "tree")
    branch.write_text("not a commit\n")
    assert seen(one) == [str(branch)]
    assert swept(one) == {str(branch)}
    assert git(tmp_path / "tree", "status", "--porcelain") == ""


def test_commits_on_the_same_branch_are_daily_work(
    repository: Path, watch: Watch, git: Git
) -> None:
    git(repository, "pack-refs", "--all")
    one = watch(repository)
    for name in "abc":
        commit(git, repository, name)
        assert seen(one) == []
    git(repository, "pack-refs", "--all")
    git(repository, "reset", "-q", "--hard", "HEAD~1")
    assert seen(one) == []
    assert swept(one) == set()
