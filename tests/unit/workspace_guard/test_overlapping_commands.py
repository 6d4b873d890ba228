"""A command that starts while another one has changed what git acts upon, unnoticed so far.

What it finds then is not the user's: as soon as the first command has ended, and its change was
undone, nothing but the second one's watch would notice that it comes back.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sandboxd.policy.plan import Protected
from sandboxd.workspace_guard.watch.absent_paths import AbsentPathsWatch

LEFT_BEHIND = {"index", "HEAD"}


def git(folder: Path, *words: str) -> str:
    named = [word for one in ("name", "email") for word in ("-c", f"user.{one}=x")]
    command = ["git", "-C", str(folder), *named, *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path.resolve() / "repository"
    git(tmp_path, "init", "-q", "-b", "main", str(folder))
    (folder / "file").write_text("x")
    git(folder, "add", "file")
    git(folder, "commit", "-q", "-m", "x")
    return folder


@contextmanager
def running(repository: Path) -> Iterator[AbsentPathsWatch]:
    """A command under the watch of its own; what it left is undone at its end."""
    root = str(repository)
    git_dir = Protected(f"{root}/.git", root, present=False, is_dir=True, rule="git_dir")
    with AbsentPathsWatch([git_dir]) as watch:
        watch.begin()
        yield watch
        watch.sweep()
        watch.rest()


def harmful(repository: Path, name: str) -> bytes:
    if name == "HEAD":
        return b"nothing\n"
    evil = repository / "evil"
    git(repository, "init", "-q", str(evil))
    git(evil, "commit", "-q", "--allow-empty", "-m", "x")
    git(evil, "config", "core.fsmonitor", "/bin/false")
    before = (repository / ".git/index").read_bytes()
    git(repository, "update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},evil")
    after = (repository / ".git/index").read_bytes()
    (repository / ".git/index").write_bytes(before)
    return after


@pytest.mark.parametrize("name", sorted(LEFT_BEHIND))
def test_what_a_running_command_has_written_is_not_the_users(repository: Path, name: str) -> None:
    content = harmful(repository, name)
    path = repository / ".git" / name
    before = path.read_bytes()
    with running(repository) as first:
        path.write_bytes(content)
        second = running(repository)
        second.__enter__()
        first.sweep()
        assert path.read_bytes() == before
    path.write_bytes(content)
    second.__exit__(None, None, None)
    assert path.read_bytes() == before


def test_what_git_has_written_meanwhile_is_put_back(repository: Path) -> None:
    """Not the index of before the first command: a harmless change stays."""
    content = harmful(repository, "index")
    path = repository / ".git/index"
    with running(repository):
        (repository / "more").write_text("x")
        git(repository, "add", "more")
        staged = path.read_bytes()
        with running(repository):
            path.write_bytes(content)
        assert path.read_bytes() == staged
