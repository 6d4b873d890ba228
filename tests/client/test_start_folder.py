"""A command starts in its workspace, or in the current folder where that lies in the workspace."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from ctl import Ctl

Git = Callable[..., str]


@pytest.fixture
def around(inside: Ctl) -> Iterator[Ctl]:
    """In a folder around the workspace `p/py`. Not below /tmp, which a sandbox has of its own."""
    inside.workspace = Path(tempfile.mkdtemp(dir=Path.home(), prefix="sandboxd-test-"))
    (inside.workspace / "p" / "py" / "deep").mkdir(parents=True)
    yield inside
    shutil.rmtree(inside.workspace)


@pytest.fixture
def git(around: Ctl) -> Git:
    """Git outside, where the current folder is a repository that tracks `a` and `p/py/b`."""

    def run(*words: str) -> str:
        named = ("git", "-c", "user.name=t", "-c", "user.email=t@example.org", *words)
        done = subprocess.run(named, cwd=around.workspace, check=True, capture_output=True)
        return done.stdout.decode()

    run("init", "-q", "-b", "main")
    for name in ("a", "p/py/b"):
        (around.workspace / name).write_text("x\n")
    run("add", ".")
    run("commit", "-qm", "x")
    return run


@pytest.mark.parametrize("preset", ["workspace-write", "read-only"])
def test_a_workspace_below_the_current_folder_is_where_the_command_starts(
    around: Ctl, preset: str
) -> None:
    def start(*flags: str) -> str:
        return around("run", "--preset", preset, *flags, "--", "pwd").stdout.decode().rstrip()

    folder = around.workspace
    assert start("-w", "p/py") == f"{folder}/p/py"
    assert start("-w", "p/py", "--read", "p") == f"{folder}/p/py"
    assert start("-w", "p/py", "--cwd", ".") == str(folder)
    around.workspace = folder / "p" / "py" / "deep"
    assert start("-w", "..") == str(around.workspace)
    around.workspace = folder


def test_git_in_a_worktree_below_the_current_folder_is_that_of_the_worktree(
    around: Ctl, git: Git
) -> None:
    git("worktree", "add", "-q", "wt", "-b", "side")
    (around.workspace / "wt/a").write_text("y\n")
    commit = ("git", "-c", "user.name=t", "-c", "user.email=t@e.org", "commit", "-qam", "inside")
    done = around("run", "-w", "wt", "--", *commit)
    assert done.returncode == 0, done.stderr
    assert git("log", "-1", "--format=%s", "--name-status", "side").split() == ["inside", "M", "a"]
    assert git("log", "-1", "--format=%s", "main").strip() == "x"


def test_the_repository_around_the_workspace_is_proposed_as_the_workspace(
    around: Ctl, git: Git
) -> None:
    folder = around.workspace
    proposed = ("-w", str(folder), "--cwd", f"{folder}/p/py")
    for flags in (("-w", "p/py"), ("-w", "p/py", "--cwd", "p/py")):
        told = around("run", *flags, "--", "git", "status").stderr.decode()
        assert f"only a part of the repository {folder}: git needs all of it, " in told
        assert told.rstrip().endswith(" ".join(proposed))
        assert "--write" not in told
    done = around("run", *proposed, "--", "git", "status", "--short")
    assert (done.returncode, done.stdout) == (0, b"")
