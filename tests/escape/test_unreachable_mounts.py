"""Mounts below a folder that the command's user may not search (mode 000).

A daemon of root plans and mounts there, but the init has the rights of the workspace's user and
cannot look. The command owns the folder and can open it: what is mounted must hold from then on.
"""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.attacks import Box
from support.git_attacks import content, make_repository, wait_for
from support.users import open_to_others, unprivileged_user

pytestmark = pytest.mark.requires("root", "bubblewrap")
OLD, NEW = "the old secret\n", "the new secret\n"


@pytest.fixture(params=["root", "user"])
def owner(request: pytest.FixtureRequest) -> tuple[int, int]:
    user = unprivileged_user()
    return (0, 0) if request.param == "root" else (user.pw_uid, user.pw_gid)


@pytest.fixture
def mounting(box: Box) -> Box:
    if box.backend == "landlock":
        pytest.skip("has no mounts")
    return box


@pytest.fixture
def folder(workspace: Path, owner: tuple[int, int]) -> Iterator[Path]:
    """Holds a secret; closed, and the command's own."""
    made = workspace / "d"
    made.mkdir()
    (made / "secret").write_text(OLD)
    give(workspace, owner)
    made.chmod(0)
    yield made
    made.chmod(0o755)


def give(workspace: Path, owner: tuple[int, int]) -> None:
    subprocess.run(["chown", "-R", ":".join(map(str, owner)), str(workspace)], check=True)
    open_to_others(workspace)
    workspace.chmod(0o755)


def save_with_backup(folder: Path) -> None:
    """As an editor of the host does once the command has opened the folder."""
    wait_for(lambda: os.stat(folder).st_mode & 0o777 == 0o755)
    (folder / "secret").rename(folder / "secret~")
    (folder / "secret").write_text(NEW)
    (folder / "secret").chmod(0o644)


def test_a_masked_file_that_is_replaced_is_noticed_in_a_folder_that_was_closed(
    mounting: Box, workspace: Path, folder: Path
) -> None:
    manifest = {"fs_write_allow": [str(workspace)], "fs_deny": [str(folder / "secret")]}
    script = 'chmod 755 "$1"; for i in $(seq 50); do sleep 0.1; cat "$1/secret"; done'
    host = threading.Thread(target=save_with_backup, args=[folder])
    host.start()
    ran = mounting.shell(script, str(folder), manifest=manifest)
    host.join()
    assert ran.outcome == "isolation_lost", ran.story
    assert ran.stdout == ""


def test_a_folder_that_the_command_opens_is_no_loss(
    mounting: Box, workspace: Path, folder: Path
) -> None:
    manifest = {"fs_write_allow": [str(workspace)], "fs_deny": [str(folder / "secret")]}
    script = 'chmod 755 "$1"; sleep 1; cat "$1/secret"; echo x > "$1/new"; chmod 0 "$1"; sleep 1'
    for _ in range(2):
        ran = mounting.shell(script, str(folder), manifest=manifest)
        assert ran.exited(0), ran.story
        assert ran.stdout == ""


@pytest.mark.requires("git")
def test_a_closed_folder_above_a_repository_leaves_the_workspace_usable_and_protected(
    mounting: Box, workspace: Path, owner: tuple[int, int]
) -> None:
    make_repository(workspace)
    inner = make_repository(workspace / "a/b")
    give(workspace, owner)
    paths = [inner / name for name in (".git/config", ".git/hooks/post-checkout", ".envrc")]
    before = [content(path) for path in paths]
    params = {"preset": "workspace-write", "workspace": str(workspace)}
    assert mounting.shell("chmod 000 a", **params).exited(0)
    try:
        for _ in range(4):  # warm ones, and those that are made for the command
            ran = mounting.shell("echo > file; git status -s file; sleep 0.2", **params)
            assert ran.exited(0), ran.story
        script = 'chmod 755 a; for path; do echo evil >> "$path"; done; chmod 000 a; sleep 0.6'
        for _ in range(2):
            ran = mounting.shell(script, *map(str, paths), **params)
            assert ran.outcome == "exited", ran.story
            assert [content(path) for path in paths] == before
    finally:
        (workspace / "a").chmod(0o755)
    assert mounting.shell("cd a/b && git status -s", **params).exited(0)


@pytest.mark.requires("git")
@pytest.mark.parametrize("mode", [0o700, 0o750])
@pytest.mark.parametrize("place", ["theirs", "theirs/a/b"])
def test_another_users_repository_in_a_closed_folder_leaves_the_workspace_usable(
    mounting: Box, workspace: Path, owner: tuple[int, int], place: str, mode: int
) -> None:
    """Nothing can be mounted for the command in there, nor can it go there."""
    make_repository(workspace)
    inner = make_repository(workspace / place)
    give(workspace, owner)
    closed = workspace / "theirs"
    subprocess.run(["chown", "-R", "4321:4321", str(closed)], check=True)
    closed.chmod(mode)
    params = {"preset": "workspace-write", "workspace": str(workspace)}
    script = 'echo x > new; git status -s new; chmod 777 theirs; mv theirs t; echo >> "$1"'
    for _ in range(2):
        ran = mounting.shell(script, str(inner / ".git/config"), **params)
        assert ran.stdout == "?? new\n", ran.story
        assert closed.stat().st_mode & 0o777 == mode
    assert (workspace / "new").exists()


def test_a_closed_workspace_can_be_opened_again(
    mounting: Box, workspace: Path, owner: tuple[int, int]
) -> None:
    """The owner's own command can mend what it did."""
    give(workspace, owner)
    manifest = {"fs_write_allow": [str(workspace)]}
    assert mounting.shell('chmod 0 "$1"', str(workspace), manifest=manifest).exited(0)
    try:
        ran = mounting.shell('chmod 755 "$1"', str(workspace), manifest=manifest)
        assert ran.exited(0), ran.story
        assert mounting.shell('echo > "$1/x"', str(workspace), manifest=manifest).exited(0)
    finally:
        workspace.chmod(0o755)
