"""The hints after a git command rest on what that command did, and on nothing older."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest
from ctl import Ctl

from sandboxd_client.cli.git_hints import git_hint

Git = Callable[..., str]


@pytest.fixture
def git(inside: Ctl) -> Git:
    """Git outside, in a repository with the branches main and topic, which conflict."""
    folder = inside.workspace

    def run(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True)
        return done.stdout.decode()

    subprocess.run(["rm", "-rf", str(folder / ".git")], check=True)
    run("init", "-q", "-b", "main")
    for name, value in (("name", "t"), ("email", "t@example.org")):
        run("config", f"user.{name}", value)
    for text in ("one", "two", "three", "four"):
        if text == "two":
            run("checkout", "-q", "-b", "topic")
        elif text == "three":
            run("checkout", "-q", "main")
        (folder / "a").write_text(text)
        run("add", "a")
        run("commit", "-qm", text)
    return run


def hint(ctl: Ctl, *words: str) -> str:
    done = ctl("run", "--", "git", *words)
    found = [line for line in done.stderr.decode().splitlines() if "sandboxctl: hint: " in line]
    return found[0] if found else ""


def test_a_rebase_with_a_conflict_is_not_told_of_an_older_one_that_lies_aside(
    inside: Ctl, git: Git
) -> None:
    assert "was moved aside" in hint(inside, "rebase", "--exec", "false", "main~1")
    assert "lies aside: if that is meant" in hint(inside, "rebase", "--abort")
    hint(inside, "checkout", "-q", "topic")
    assert hint(inside, "rebase", "main") == "", "a conflict: git knows of this rebase"
    assert (inside.workspace / ".git/rebase-merge").is_dir()
    assert hint(inside, "rebase", "main") == "", "there is one already"
    assert hint(inside, "rebase", "--continue") == "", "the conflict is not resolved"
    git("rebase", "--abort")
    assert hint(inside, "rebase", "nosuch") == ""


def test_only_what_was_moved_and_written_counts_as_that() -> None:
    """A read of a file says nothing about settings, and a refused change moves nothing aside."""
    read = {"kind": "filesystem_read", "target": "/h/.gitconfig", "message": "is not visible"}
    assert git_hint(["push"], 1, [read], "/w") is None
    stays = {"kind": "protected_path", "target": "/w/.git/rebase-merge", "operation": "create",
             "message": "/w/.git/rebase-merge stays as it is: it is protected"}  # fmt: skip
    assert "was moved aside" not in (git_hint(["rebase"], 1, [stays], "/w") or "")
    for words in (["submodule", "foreach", "false"], ["submodule", "status", "x"]):
        assert git_hint(words, 1, [], "/w") is None


@pytest.mark.parametrize(
    ("words", "left"),
    [
        (["../in2", "-b", "br2"], "git worktree prune, git branch -d br2"),
        (["-b", "br2", "../in2"], "git worktree prune, git branch -d br2"),
        (["../in2"], "git worktree prune, git branch -d in2"),
        (["../in2", "topic"], "git worktree prune"),
        (["--detach", "../in2"], "git worktree prune"),
        (["/tmp/in2"], "git worktree prune, git branch -d in2"),  # made, and lost
    ],
)
def test_a_worktree_that_was_not_made_names_what_it_left(
    inside: Ctl, git: Git, words: list[str], left: str
) -> None:
    told = hint(inside, "worktree", "add", *words)
    assert " was not made. A worktree is made outside of the sandbox" in told
    assert told.partition("To remove what this left, outside: ")[2].startswith(left)
    assert ("git branch" in told) == ("git branch" in left)


def test_a_folder_that_an_earlier_worktree_left_is_named_as_the_reason(
    inside: Ctl, git: Git
) -> None:
    assert hint(inside, "worktree", "add", "inner", "nosuch") == "", "git's own affair"
    hint(inside, "worktree", "add", "../in2")
    told = hint(inside, "worktree", "add", "inner")
    assert "an earlier one left that folder here, and git worktree prune, outside" in told
    assert "To remove what this left, outside: git branch -d inner" in told
    assert "in2" not in told
    git("worktree", "prune")
    assert hint(inside, "-C", ".", "worktree", "add", "inner") == ""
    assert (inside.workspace / "inner/a").exists()
    told = hint(inside, "worktree", "add", "second")
    assert "was not made" in told
    assert "prune" not in told, "there is another worktree, which it would not remove"


def test_the_line_for_outside_names_the_same_repository() -> None:
    denial = {"kind": "protected_path", "target": "/w/lib/.git/config"}
    words, before = ["remote", "add", "o", "/x"], ["git", "-C", "lib"]
    assert "git -C lib remote add o /x" in str(git_hint(words, 128, [denial], "/w", "", before))


@pytest.mark.parametrize("linked", [False, True])
def test_a_git_dir_that_lies_elsewhere_is_named(inside: Ctl, linked: bool) -> None:
    folder, place = inside.workspace, inside.workspace.parent / "sep.git"
    subprocess.run(["rm", "-rf", str(folder / ".git")], check=True)
    subprocess.run(["git", "init", "-q", "--separate-git-dir", str(place), str(folder)], check=True)
    if linked:
        (folder / ".git").unlink()
        (folder / ".git").symlink_to(place)
    assert f"is not visible in the sandbox: add --write {place}" in hint(inside, "status")
    done = inside("run", "--write", str(place), "--", "git", "status")
    assert done.returncode == 0, done.stderr
    done = inside("run", "--write", str(place), "--", "git", "log", "nosuch")
    assert b"--write" not in done.stderr
    hook = inside("run", "--write", str(place), "--", "sh", "-c", f"echo x > {place}/hooks/x")
    assert hook.returncode != 0 or not (place / "hooks/x").exists()
