"""`git push` runs the hooks of a repository on the same machine: none of the command's."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from support.attacks import Box
from support.git_attacks import HOW, attack, git, is_reported, make_repository

pytestmark = [pytest.mark.isolation, pytest.mark.requires("git")]

MAKE = """
    git init -q . && git checkout -q -b main
    git -c user.name=t -c user.email=t commit -q --allow-empty -m x
    git init -q --bare up.git
    printf '#!/bin/sh\\ntouch %s/ran\\n' "$PWD" > up.git/hooks/pre-receive
    chmod +x up.git/hooks/pre-receive
"""
REMOTES = {
    "a relative path": "git remote add origin ./up.git",
    "an absolute path": 'git remote add origin "$PWD/up.git"',
    "an address": 'git remote add origin "file://$PWD/up%2Egit"',
    "of a branch": "git config branch.main.remote up.git; "
    "git config branch.main.merge refs/heads/main",
}


def runs_code(folder: Path) -> bool:
    git(folder, "push", check=False)
    git(folder, "push", "origin", "main", check=False)
    return (folder / "ran").exists()


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("name", REMOTES)
def test_a_new_repository_pushes_to_none_of_the_command(
    box: Box, workspace: Path, name: str, how: str
) -> None:
    script = f"{MAKE}\n{REMOTES[name]}"
    ran = attack(box, how, workspace, ("sh", "-ec", script))
    assert is_reported(ran), ran.story
    assert not runs_code(workspace), ran.story
    control = workspace.parent / "control"
    control.mkdir()
    subprocess.run(["sh", "-ec", script], cwd=control, check=True)
    assert runs_code(control)


def test_a_remote_in_a_home_may_be_in_that_of_whoever_pushes(box: Box, workspace: Path) -> None:
    """The home need not be the daemon's: root may run the daemon, and another user git."""
    script = f"{MAKE}\ngit remote add origin '~/up.git'"
    ran = attack(box, "cold", workspace, ("sh", "-ec", script))
    assert is_reported(ran), ran.story
    push = ("git", "push", "origin", "main")
    subprocess.run(push, cwd=workspace, env={**os.environ, "HOME": str(workspace)}, check=False)
    assert not (workspace / "ran").exists(), ran.story
    control = workspace.parent / "control"
    control.mkdir()
    subprocess.run(["sh", "-ec", script], cwd=control, check=True)
    subprocess.run(push, cwd=control, env={**os.environ, "HOME": str(control)}, check=False)
    assert (control / "ran").exists()


def test_remotes_elsewhere_stay(box: Box, workspace: Path, outside: Path) -> None:
    make_repository(outside / "source")
    script = f"git init -q . && git remote add origin {outside}/source && "
    script += "git remote add host example.org:project && git remote add up ../beside && "
    script += "git config branch.main.remote origin && git config branch.main.merge refs/heads/main"
    ran = attack(box, "cold", workspace, ("sh", "-ec", script))
    assert ran.exited(0), ran.story
    assert not is_reported(ran), ran.story
    assert git(workspace, "remote") == "host\norigin\nup\n"


def test_a_remote_in_another_writable_folder(box: Box, workspace: Path, tmp_path: Path) -> None:
    """Of a repository in a folder of the user."""
    other = tmp_path.resolve() / "other"
    control = tmp_path / "control"
    for folder in (other, control, workspace / "src"):
        folder.mkdir()
        folder.chmod(0o777)
    script = (
        f"{MAKE}\nrm -rf {other}/up.git; mv up.git {other}; git remote add origin {other}/up.git"
    )
    params = {"preset": "workspace-write", "workspace": str(workspace), "cwd": f"{workspace}/src"}
    manifest = {"fs_write_allow": [str(other)]}
    ran = box.run("sh", "-ec", script, manifest=manifest, **params)
    assert ran.exited(0), ran.story
    assert is_reported(ran), ran.story
    assert not runs_code(workspace / "src"), ran.story
    subprocess.run(["sh", "-ec", script], cwd=control, check=True)
    assert runs_code(control)
