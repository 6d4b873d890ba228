"""A folder of the user becomes a repository that runs programs, far from where a plan looks, behind
many other folders, in a closed folder or by way of one that is not searched."""

from __future__ import annotations

import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.attacks import Box
from support.git_attacks import HOW, attack, git, is_reported, make_repository, wait_for
from support.runs import Ran

pytestmark = [pytest.mark.isolation, pytest.mark.requires("git")]
DEEP = "src/main/java/com/example/app/service"
MANY = "seq -f q%g 1500 | xargs mkdir"


class Project:
    """A workspace, and a program that git on the host would run."""

    def __init__(self, folder: Path, mark: Path) -> None:
        self.folder = make_repository(folder)
        self._mark = mark

    def with_folders(self, *names: str) -> None:
        for name in names:
            (self.folder / name).mkdir(parents=True)
            (self.folder / name / "file").write_text("x")

    def harm(self, name: str) -> str:
        """A line for the shell that makes the folder a harmful repository."""
        return f"git init -q {name} && git -C {name} config core.fsmonitor 'touch {self._mark}; :'"

    def runs_in(self, name: str) -> bool:
        git(self.folder / name, "status", check=False)
        ran = self._mark.exists()
        self._mark.unlink(missing_ok=True)
        return ran

    def check_control(self) -> None:
        """Without a sandbox the program runs."""
        self.with_folders("control")
        git(self.folder / "control", "init", "-q")
        git(self.folder / "control", "config", "core.fsmonitor", f"touch {self._mark}; :")
        assert self.runs_in("control")
        shutil.rmtree(self.folder / "control")


@pytest.fixture
def project(workspace: Path, tmp_path: Path) -> Iterator[Project]:
    marks = tmp_path / "marks"
    marks.mkdir(mode=0o777)
    found = Project(workspace, marks / "ran")
    found.check_control()
    yield found
    for folder in (workspace / "src", workspace / "src/lib"):  # for the tests' own removal
        if folder.is_dir():
            folder.chmod(0o755)


def run(box: Box, project: Project, *lines: str, how: str = "cold") -> Ran:
    ran = attack(box, how, project.folder, ("sh", "-c", "\n".join(("set -e", *lines))))
    assert ran.exited(0), ran.story
    return ran


def said(ran: Ran) -> str:
    return " ".join(ran.raw["warnings"])


@pytest.mark.parametrize("how", HOW)
def test_far_from_the_top(box: Box, project: Project, how: str) -> None:
    many = [f"d{number}" for number in range(300)]
    project.with_folders(DEEP, *many, "zz", "zz/hg")
    lines = project.harm(DEEP), project.harm("zz"), "mkdir zz/hg/.hg; echo > zz/hg/.hg/hgrc"
    ran = run(box, project, *lines, how=how)
    assert not project.runs_in(DEEP), ran.story
    assert not project.runs_in("zz"), ran.story
    assert not (project.folder / "zz/hg/.hg/hgrc").exists()
    assert is_reported(ran)


def test_folders_of_an_earlier_command_hide_nothing(box: Box, project: Project) -> None:
    project.with_folders("src")
    run(box, project, "for i in $(seq 300); do mkdir a$i; done")
    ran = run(box, project, project.harm("src"))
    assert not project.runs_in("src"), ran.story


def test_one_far_down_that_was_harmless_is_not_armed_later(box: Box, project: Project) -> None:
    project.with_folders(DEEP)
    ran = run(box, project, f"git init -q {DEEP}")
    assert f"a git repository in {project.folder}/{DEEP}:" in said(ran)
    box.shell(project.harm(DEEP), preset="workspace-write", workspace=str(project.folder))
    assert not project.runs_in(DEEP)


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("place", ["src", "src/lib", "src/.git"])
def test_in_a_closed_folder(box: Box, project: Project, how: str, place: str) -> None:
    """Itself, the one above it, or what makes it a repository."""
    victim = {"src": "src", "src/lib": "src/lib", "src/.git": "src"}[place]
    closed = "src/.git" if place == "src/.git" else "src"
    project.with_folders("src", "src/lib")
    ran = run(box, project, project.harm(victim), f"chmod 000 {closed}", how=how)
    for folder in (project.folder / "src", project.folder / "src/.git"):
        if folder.is_dir():
            folder.chmod(0o755)
    assert not project.runs_in(victim), ran.story
    assert is_reported(ran)


def test_a_closed_folder_is_opened_again(box: Box, project: Project) -> None:
    project.with_folders("src")
    ran = run(box, project, "chmod 000 src")
    if "was closed" in said(ran):  # root looks into it as it is
        assert stat.S_IMODE((project.folder / "src").stat().st_mode) & 0o700 == 0o700


BACK = {
    "moved away and back": "mv node_modules/s src",
    "behind many folders": f"{MANY}; mv node_modules/s src; mkdir z; cd z; {MANY}",
}


@pytest.mark.parametrize("way", BACK)
def test_by_way_of_a_folder_that_is_not_searched(box: Box, project: Project, way: str) -> None:
    project.with_folders("src", "node_modules")
    run(box, project, "mv src node_modules/s", project.harm("node_modules/s"))
    assert project.runs_in("node_modules/s")  # control
    ran = run(box, project, BACK[way])
    assert not project.runs_in("src"), ran.story


def test_a_link_to_a_bare_repository_in_its_place(box: Box, project: Project) -> None:
    project.with_folders("src", "node_modules")
    lines = (
        "mv src node_modules/old; git init -q --bare node_modules/x; cd node_modules/x",
        "git config core.bare false; git config core.worktree ../old",
        project.harm(".").partition(" && ")[2],
        "cd ../..; ln -s node_modules/x src",
    )
    ran = run(box, project, *lines)
    assert project.runs_in("node_modules/x")  # control
    assert not project.runs_in("src") or not (project.folder / "src").exists(), ran.story


def test_new_ones_are_named_behind_many_folders(box: Box, project: Project) -> None:
    ran = run(box, project, MANY, project.harm("zz/new"))
    assert f"a git repository in {project.folder}/zz/new:" in said(ran)


def test_more_than_are_named_are_said(box: Box, project: Project) -> None:
    ran = run(box, project, "for i in $(seq 40); do mkdir -p a$i/.git; done")
    assert "20 more repositories" in said(ran)


LATER = {
    "git": ("git init -q src", "git -C src config core.fsmonitor x", ".git/config"),
    "a hook": (
        "git init -q src",
        "mkdir -p src/.git/hooks; echo x > src/.git/hooks/x",
        ".git/hooks/x",
    ),
    "a new name": ("git init -q src", "echo > src/.git/config.worktree", ".git/config.worktree"),
    "hg": ("mkdir src/.hg", "echo > src/.hg/hgrc", ".hg/hgrc"),
}


@pytest.mark.parametrize("left", ["by the command", "by what it left running"])
@pytest.mark.parametrize("way", LATER)
def test_one_that_was_made_after_a_persistent_sandbox(
    box: Box, project: Project, way: str, left: str
) -> None:
    """By the user, or by another command where it is harmless: it is not armed in the sandbox."""
    made, armed, name = LATER[way]
    project.with_folders("src")
    params = {"preset": "workspace-write", "workspace": str(project.folder)}
    sandbox = box.connection.call("sandbox/create", params)["sandbox"]
    run(box, project, made)
    path = project.folder / "src" / name
    before = path.read_bytes() if path.exists() else None
    line = armed if left == "by the command" else f"({armed}; sleep 1000) > /dev/null 2>&1 &"
    box.shell(line, sandbox=sandbox, cwd=str(project.folder))
    wait_for(lambda: (path.read_bytes() if path.exists() else None) == before)
    if left != "by the command":
        wait_for(lambda: any((project.folder / ".sandboxd-kept").glob("*/1-src*")))
    box.connection.call("sandbox/destroy", {"sandbox": sandbox})
    assert (path.read_bytes() if path.exists() else None) == before


def test_harmless_settings_of_a_later_one_stay(box: Box, project: Project) -> None:
    project.with_folders("src")
    params = {"preset": "workspace-write", "workspace": str(project.folder)}
    sandbox = box.connection.call("sandbox/create", params)["sandbox"]
    git(project.folder / "src", "init", "-q")
    box.shell(
        "git -C src remote add x https://example.org/x", sandbox=sandbox, cwd=str(project.folder)
    )
    box.connection.call("sandbox/destroy", {"sandbox": sandbox})
    assert git(project.folder / "src", "remote") == "x\n"
