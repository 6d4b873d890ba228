"""Whose git may have made an index lock that we cannot see it hold."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from sandboxd.workspace_guard.repositories.stale_lock import _is_git_of, remove_stale_lock


def test_a_git_of_another_user_did_not_make_the_lock(tmp_path: Path) -> None:
    program = shutil.copy(shutil.which("sleep") or "", tmp_path / "git-commit")
    with subprocess.Popen([program, "600"]) as git, subprocess.Popen(["sleep", "600"]) as other:
        assert _is_git_of(str(git.pid), os.getuid())
        assert not _is_git_of(str(git.pid), os.getuid() + 1)
        assert not _is_git_of(str(other.pid), os.getuid())
        git.kill()
        other.kill()


@pytest.mark.parametrize("in_container", [False, True])
def test_a_git_whose_editor_is_open_keeps_its_lock(tmp_path: Path, in_container: bool) -> None:
    """`git commit -a` has written and closed its lock when it starts the editor."""
    repository = tmp_path.resolve() / "repository"
    started, go_on = tmp_path / "started", tmp_path / "go-on"
    editor = f"touch {started}; while ! [ -e {go_on} ]; do sleep 0.05; done; echo x >"
    named = [word for one in ("name", "email") for word in ("-c", f"user.{one}=x")]
    git = ["git", "-C", str(repository), *named]
    env = {**os.environ, "GIT_EDITOR": editor}
    subprocess.run(["git", "init", "-q", str(repository)], check=True)
    (repository / "file").write_text("x")
    subprocess.run([*git, "add", "file"], check=True)
    command = [*git, "commit", "-q", "-a"]
    if in_container:
        (tmp_path / "mounted").mkdir()
        script = f'mount --bind {repository} {tmp_path}/mounted && cd {tmp_path}/mounted && "$@"'
        command = ["unshare", "-rm", "sh", "-c", script, "sh", "git", *git[3:], *command[-3:]]
    with subprocess.Popen(command, env=env) as run:
        while not started.exists():
            assert run.poll() is None
            time.sleep(0.01)
        removed = remove_stale_lock(str(repository), 0.0)
        go_on.touch()
        assert run.wait(60) == 0
        assert not removed
    (repository / ".git/index.lock").touch()
    assert remove_stale_lock(str(repository), 0.0), "the control: nobody uses it any more"
