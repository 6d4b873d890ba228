"""A protected file that has a second name in the workspace, by which it is written."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from support.attacks import Box
from support.git_attacks import HOW, attack, git, is_reported, make_repository, wait_for

pytestmark = [pytest.mark.isolation, pytest.mark.requires("git")]

PROTECTED = (".git/hooks/pre-commit", ".git/config", ".vscode/tasks.json", ".envrc", "tools/run")
MAPPED = """
import mmap, os, sys, time
fd = os.open(sys.argv[1], os.O_RDWR)
view = mmap.mmap(fd, 4)
view[:4] = b"evil"
print(flush=True)
time.sleep(float(sys.argv[2]))
os._exit(0)
"""
WAYS = {
    "in place": "echo evil > second",
    "appended": "echo evil >> second",
    "mapped": f"python3 -c '{MAPPED}' second 0",
}


@pytest.fixture
def project(workspace: Path) -> Path:
    """With a program that a setting names, too."""
    make_repository(workspace)
    git(workspace, "config", "core.sshCommand", "tools/run")
    return workspace


def with_second_name(project: Path, name: str) -> bytes:
    path = project / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        path.write_text("text of the user\n")
    os.link(path, project / "second")
    return path.read_bytes()


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("name", PROTECTED)
def test_what_is_written_by_another_name_is_undone(
    box: Box, project: Path, name: str, how: str
) -> None:
    before = with_second_name(project, name)
    ran = attack(box, how, project, ("sh", "-c", WAYS["in place"]))
    assert (project / name).read_bytes() == before, ran.story
    assert is_reported(ran)
    assert (project / "second").read_bytes() == b"evil\n"


@pytest.mark.parametrize("way", WAYS)
def test_ways_to_write_it(box: Box, project: Path, way: str) -> None:
    before = with_second_name(project, ".git/hooks/pre-commit")
    ran = attack(box, "cold", project, ("sh", "-c", WAYS[way]))
    assert (project / ".git/hooks/pre-commit").read_bytes() == before, ran.story


@pytest.mark.parametrize("way", WAYS)
def test_control(project: Path, way: str) -> None:
    before = with_second_name(project, ".git/hooks/pre-commit")
    subprocess.run(["sh", "-c", WAYS[way]], cwd=project, check=True)
    assert (project / ".git/hooks/pre-commit").read_bytes() != before


def test_while_the_command_runs(box: Box, project: Path) -> None:
    before = with_second_name(project, ".git/hooks/pre-commit")
    attack(box, "cold", project, ("python3", "-c", MAPPED), "second", 1000)
    assert (project / ".git/hooks/pre-commit").read_bytes() == before


def test_by_what_a_command_left_running(box: Box, project: Path) -> None:
    before = with_second_name(project, ".git/hooks/pre-commit")
    params = {"preset": "workspace-write", "workspace": str(project)}
    sandbox = box.connection.call("sandbox/create", params)["sandbox"]
    line = "(sleep 0.5; echo evil > second; sleep 1000) > /dev/null 2>&1 &"
    box.shell(line, sandbox=sandbox, cwd=str(project))
    wait_for(lambda: (project / "second").read_bytes() == b"evil\n")
    wait_for(lambda: (project / ".git/hooks/pre-commit").read_bytes() == before)


def test_a_file_that_the_user_exchanges_meanwhile_stays(box: Box, project: Path) -> None:
    """As an editor does: a command cannot."""
    with_second_name(project, ".git/hooks/pre-commit")
    params = {"preset": "workspace-write", "workspace": str(project)}
    sandbox = box.connection.call("sandbox/create", params)["sandbox"]
    (project / "new").write_text("another text of the user\n")
    (project / "new").rename(project / ".git/hooks/pre-commit")
    assert box.shell("echo evil > second", sandbox=sandbox, cwd=str(project)).exited(0)
    box.connection.call("sandbox/destroy", {"sandbox": sandbox})
    assert (project / ".git/hooks/pre-commit").read_text() == "another text of the user\n"
