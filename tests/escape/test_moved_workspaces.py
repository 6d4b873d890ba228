"""Workspaces that are moved while a sandbox can write them: its mount stays on the folder.

By another command, which may write the folder above, or by the user. What the command makes from
then on lies where no path of its plan leads, and git on the host would run it there.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest
from support.attacks import Box, freely, python
from support.git_attacks import content, git, make_repository, tree, wait_for
from support.rpc import RpcError
from support.runs import Ran

pytestmark = [pytest.mark.isolation, pytest.mark.requires("git")]
# What the host would run: a repository in a folder of the user, and what is new by its name.
PLANT = """
    mkdir -p sub/.git/objects sub/.git/refs .vscode
    echo 'ref: refs/heads/m' > sub/.git/HEAD
    printf '[core]\n\trepositoryformatversion = 0\n\tfsmonitor = "touch %s; false"\n' "$1" \
        > sub/.git/config
    echo x > .envrc
    echo x > .vscode/tasks.json
"""
WAIT = 'touch "$2/up"; until [ -e "$2/go" ]; do sleep 0.02; done\n'
# Moves `ws` to where no path leads, for it would be longer than any may be.
TOO_DEEP = python("""
    top = os.open(".", os.O_RDONLY)
    for _ in range(25):
        os.mkdir("d" * 200)
        os.chdir("d" * 200)
    os.rename("ws", "ws", src_dir_fd=top, dst_dir_fd=os.open(".", os.O_RDONLY))
    worked()
""")
# By a command in a sandbox of the folder above.
BY_COMMAND = {
    "renamed": "mv ws now",
    "a new folder": "mv ws now && mkdir -p ws/sub",
    "into a new folder": "mv ws x && mkdir ws && mv x ws/now",
}
HOW = [*BY_COMMAND, "by the user", "the folder above", "twice"]


class Project:
    """A workspace `ws`, in the folder `above`, that somebody moves."""

    def __init__(self, box: Box, base: Path) -> None:
        self.box = box
        self.above = base / "above"
        self.workspace = self.above / "ws"
        self.workspace.mkdir(parents=True)
        (self.workspace / "sub").mkdir()
        (self.workspace / "sub/own").write_text("the user's\n")
        self.sync = base / "sync"
        self.sync.mkdir()
        self.mark = self.sync / "ran"
        self.request = {
            "preset": "workspace-write",
            "workspace": str(self.workspace),
            "manifest": {"fs_write_allow": [str(self.sync)]},
        }

    def move(self, how: str) -> Path:
        """Where the workspace is now."""
        if how in BY_COMMAND:
            params = {"preset": "workspace-write", "workspace": str(self.above)}
            ran = self.box.shell(BY_COMMAND[how], cwd=str(self.above), **params)
            assert ran.exited(0), ran.story
            return self.above / ("ws/now" if how == "into a new folder" else "now")
        if how == "the folder above":
            return self.above.rename(self.above.with_name("elsewhere")) / "ws"
        now = self.workspace.rename(self.above / "now")
        return now.rename(self.above / "then") if how == "twice" else now

    def run_moved(self, how: str, sandbox: str | None, after: str = "") -> tuple[Ran, Path]:
        """The command plants while the workspace is moved."""
        script = WAIT + PLANT + after
        request = self.request if sandbox is None else {"sandbox": sandbox}
        argv = ["sh", "-c", script, "sh", str(self.mark), str(self.sync)]
        asked = self.box.connection.start(
            "execute", {"argv": argv, "cwd": str(self.workspace), **request}
        )
        wait_for((self.sync / "up").exists)
        with_other = Box(self.box.backend, self.box.daemon)
        own, self.box = self.box, with_other
        try:
            now = self.move(how)
        finally:
            self.box = own
            with_other.close()
        (self.sync / "go").touch()
        return Ran(self.box.connection.result(asked)), now

    def assert_harmless(self, now: Path) -> None:
        for folder in (now, now / "sub"):
            git(folder, "status", check=False)
        assert not self.mark.exists()
        assert not (now / ".envrc").exists()
        assert not (now / ".vscode/tasks.json").exists()
        assert (now / "sub/own").read_text() == "the user's\n"


@pytest.fixture
def project(box: Box, tmp_path: Path, request: pytest.FixtureRequest) -> Project:
    """A repository, where a mount on it does not keep it from being renamed."""
    made = Project(box, tmp_path.resolve())
    if "exchange" in request.node.callspec.params:
        made.request["manifest"] = {"fs_write_allow": [str(made.above)]}
        return made
    how = request.node.callspec.params.get("how", "renamed")
    if how not in BY_COMMAND:
        make_repository(made.workspace)
    return made


@pytest.fixture
def sandbox(box: Box, project: Project, request: pytest.FixtureRequest) -> str | None:
    """A persistent one, or None."""
    if request.param == "fresh":
        return None
    return str(box.connection.call("sandbox/create", project.request)["sandbox"])


both = pytest.mark.parametrize("sandbox", ["fresh", "persistent"], indirect=True)


def test_control_the_host_runs_what_is_planted(project: Project) -> None:
    program = ["sh", "-c", PLANT, "sh", str(project.mark)]
    subprocess.run(program, cwd=project.workspace, check=True)
    git(project.workspace / "sub", "status", check=False)
    assert project.mark.exists()


@both
@pytest.mark.parametrize("how", HOW)
def test_nothing_runs_after_a_move_under_a_command(
    project: Project, sandbox: str | None, how: str
) -> None:
    ran, now = project.run_moved(how, sandbox)
    assert ran.outcome == "isolation_lost", ran.story
    assert ran.stdout == ""
    said = " ".join(ran.raw["warnings"])
    if how == "into a new folder":  # the command may have ended before the last of the renames
        assert f"{project.workspace} was moved to {project.above}/" in said, said
    else:
        assert f"{project.workspace} was moved to {now}" in said, said
    project.assert_harmless(now)
    if sandbox is not None:
        with pytest.raises(RpcError, match="was moved to"):
            project.box.run("true", sandbox=sandbox)


@both
def test_nothing_runs_of_what_a_command_makes_until_it_is_ended(
    project: Project, sandbox: str | None
) -> None:
    """It plants first, and again and again."""
    script = f"exec 2>&-\nwhile :; do {PLANT}\n:; done\n"
    ran, now = project.run_moved("a new folder", sandbox, script)
    assert ran.outcome == "isolation_lost", ran.story
    project.assert_harmless(now)


@pytest.mark.parametrize("how", HOW)
def test_nothing_runs_in_a_sandbox_whose_workspace_was_moved(project: Project, how: str) -> None:
    """Between two of its commands; the file operations neither."""
    sandbox = project.box.connection.call("sandbox/create", project.request)["sandbox"]
    assert project.box.run("true", sandbox=sandbox).exited(0)
    now = project.move(how)
    with pytest.raises(RpcError, match="was moved to"):
        project.box.shell(PLANT, str(project.mark), sandbox=sandbox)
    project.assert_harmless(now)


def test_what_a_command_left_running_is_ended(project: Project) -> None:
    sandbox = project.box.connection.call("sandbox/create", project.request)["sandbox"]
    os.mkfifo(project.sync / "alive")
    (project.sync / "alive").chmod(0o666)
    alive = os.open(project.sync / "alive", os.O_RDONLY | os.O_NONBLOCK)
    left = f"(exec >&- 2>&- 9> $2/alive; {WAIT}{PLANT}: > $2/planted; sleep 60) & exec true"
    ran = project.box.shell(
        left, str(project.mark), str(project.sync), sandbox=sandbox, cwd=str(project.workspace)
    )
    assert ran.exited(0), ran.story
    wait_for((project.sync / "up").exists)
    now = project.move("the folder above")
    (project.sync / "go").touch()

    def is_lost() -> bool:
        found = project.box.connection.call("sandbox/get", {"sandbox": sandbox})
        return bool(found.get("state") == "lost")

    def is_dead() -> bool:
        with suppress(BlockingIOError):
            return os.read(alive, 1) == b""
        return False

    wait_for(is_lost)
    wait_for(is_dead)  # until then it may plant
    os.close(alive)
    wait_for(lambda: not (now / "sub/.git").exists() and not (now / ".envrc").exists())
    project.assert_harmless(now)


def test_a_granted_folder_that_is_moved(project: Project) -> None:
    """Any writable folder of the plan, not the workspace alone."""
    granted = project.workspace
    other = granted.parent.parent / "other"
    other.mkdir()
    project.request = {
        "preset": "workspace-write",
        "workspace": str(other),
        "manifest": {"fs_write_allow": [str(project.sync), str(granted)]},
    }
    ran, now = project.run_moved("a new folder", None)
    assert ran.outcome == "isolation_lost", ran.story
    git(now / "sub", "status", check=False)
    assert not project.mark.exists()


@both
def test_a_place_whose_path_is_too_long(project: Project, sandbox: str | None) -> None:
    def move(how: str) -> Path:
        assert freely(TOO_DEEP, cwd=project.above).worked
        return project.above

    project.move = move  # type: ignore[method-assign]
    ran, _ = project.run_moved("too deep", sandbox, "sleep 60")
    assert ran.outcome == "isolation_lost", ran.story
    said = " ".join(ran.raw["warnings"])
    assert f"{project.workspace} was moved to a place whose path is too long" in said, said
    assert "look for new names" in said


@both
@pytest.mark.parametrize("exchange", ["mv ws x", "rm -r ws"])
def test_another_folder_in_the_place_of_an_inner_one(
    project: Project, sandbox: str | None, exchange: str
) -> None:
    """A command that may write the folder above, too, makes it."""
    request = project.request if sandbox is None else {"sandbox": sandbox}
    plant = f"{PLANT} rm -rf .git; mv sub/.git .git"
    script = f"{exchange}; mkdir -p ws/sub; cd ws; {plant}"
    ran = project.box.shell(script, str(project.mark), cwd=str(project.above), **request)
    git(project.workspace, "status", check=False)
    assert not project.mark.exists(), ran.story
    assert not (project.workspace / ".envrc").exists(), ran.story
    assert not (project.workspace / ".vscode/tasks.json").exists(), ran.story
    if exchange == "mv ws x":
        assert (project.workspace / "sub/own").read_text() == "the user's\n", ran.story


@both
def test_a_workspace_that_is_removed(project: Project, sandbox: str | None) -> None:
    """Without a repository, which would be put back while it goes."""

    def move(how: str) -> Path:
        shutil.rmtree(project.workspace)
        return project.workspace

    project.move = move  # type: ignore[method-assign]
    ran, _ = project.run_moved("removed", sandbox)
    assert ran.outcome == "isolation_lost", ran.story
    (why,) = [one["message"] for one in ran.raw["denials"] if one["kind"] == "sandbox_error"]
    assert f"{project.workspace} was removed, so everything in the sandbox was ended" in why
    assert any("was removed" in one for one in ran.raw["warnings"]), ran.raw["warnings"]


@pytest.mark.parametrize("kind", ["fresh", "persistent"])
def test_nothing_of_the_user_is_undone(project: Project, kind: str) -> None:
    make_repository(project.workspace)
    users = make_repository(project.workspace / "sub/project")
    git(users, "worktree", "add", "-q", "../tree")
    hook = users / ".git/hooks/post-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\n")
    git(users, "config", "core.fsmonitor", "false")
    (project.workspace / ".vscode").mkdir()
    (project.workspace / ".vscode/settings.json").write_text("{}\n")
    before = tree(project.workspace)
    script = WAIT + 'echo made > "$1.made"; echo mine > made; sleep 60'
    argv = ["sh", "-c", script, "sh", str(project.mark), str(project.sync)]
    request = project.request
    if kind == "persistent":
        made = project.box.connection.call("sandbox/create", project.request)["sandbox"]
        request = {"sandbox": made}
    asked = project.box.connection.start(
        "execute", {"argv": argv, "cwd": str(project.workspace), **request}
    )
    wait_for((project.sync / "up").exists)
    (project.sync / "go").touch()
    wait_for((project.workspace / "made").exists)
    now = project.move("by the user")
    ran = Ran(project.box.connection.result(asked))
    assert ran.outcome == "isolation_lost", ran.story
    after = tree(now)
    assert content(now / "made") == b"mine\n"
    assert {name: after.get(name) for name in before} == before
