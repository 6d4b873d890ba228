"""Files of a writable workspace that run later, outside: git's hooks and settings, editors' tasks.

Where files are isolated for certain nothing can be changed. Elsewhere ("best_effort") a change is
undone after the command and reported; either way the host finds what it had left there.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from support.attacks import Box, Verdict, Victim, freely, python
from support.runs import Ran

pytestmark = [pytest.mark.isolation, pytest.mark.requires("git")]

WRITE = python("open(args[0], 'w').write('changed'); worked()")


@pytest.fixture
def repository(workspace: Path) -> Path:
    """A workspace with a repository, a hook, a submodule's git dir and an editor's tasks."""
    git = ["git", "-c", "init.defaultBranch=main", "-C", str(workspace)]
    subprocess.run([*git, "init", "--quiet"], check=True, env={"PATH": os.environ["PATH"]})
    for name in (".git/modules/sub", ".vscode"):
        (workspace / name).mkdir(parents=True)
    return workspace


def attack(box: Box, repository: Path, program: Sequence[str], *args: object) -> Ran:
    return box.run(*program, *map(str, args), preset="workspace-write", workspace=str(repository))


def kept(box: Box, ran: Ran, victim: Victim) -> bool:
    """The file is what it was; where that is not certain, the change is at least reported."""
    reported = any(denial["kind"] == "protected_path" for denial in ran.denials)
    if box.firm:
        return victim.untouched and ran.exit_code != 42
    same = victim.path.read_text() == Victim.ORIGINAL and not victim.path.is_symlink()
    executable = os.access(victim.path, os.X_OK)
    return same and not executable and (ran.exit_code != 42 or reported)


KEPT = [
    ".git/config",
    ".git/hooks/pre-commit",
    ".git/modules/sub/config",
    ".gitmodules",
    ".envrc",
    ".vscode/tasks.json",
]


@pytest.mark.parametrize("name", KEPT)
def test_protected_file_is_not_written(box: Box, repository: Path, name: str) -> None:
    """Open a file that git, direnv or an editor will run, and write it."""
    victim = Victim(repository / name)
    assert freely(WRITE, victim).worked
    assert victim.was_hit()
    assert kept(box, attack(box, repository, WRITE, victim), victim)


def test_new_hook_is_not_made(box: Box, repository: Path) -> None:
    """Create a hook that does not exist yet. The control commits, and the hook runs."""
    make = python("""
        with open(args[0], "w") as hook:
            hook.write("#!/bin/sh\\ntouch ran\\n")
            os.chmod(hook.fileno(), 0o755)
        worked()
    """)
    hook = repository / ".git/hooks/post-commit"
    commit = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org", "-C", str(repository),
              "commit", "--quiet", "--allow-empty", "-m", "x"]  # fmt: skip
    assert freely(make, hook).worked
    subprocess.run(commit, check=True)
    assert (repository / "ran").exists()
    hook.unlink()
    ran = attack(box, repository, make, hook)
    assert ran.exit_code != 42 or any(d["kind"] == "protected_path" for d in ran.denials)
    assert not hook.exists()


def test_protected_file_is_not_truncated(box: Box, repository: Path) -> None:
    """truncate(2) by path, which is not an open for writing."""
    program = python("os.truncate(args[0], 0); worked()")
    victim = Victim(repository / ".git/config")
    assert freely(program, victim).worked
    assert victim.was_hit()
    assert kept(box, attack(box, repository, program, victim), victim)


def test_protected_file_is_not_made_executable(box: Box, repository: Path) -> None:
    """chmod: a hook that was switched off is on again. Landlock does not cover it."""
    program = python("os.chmod(args[0], 0o755); worked()")
    victim = Victim(repository / ".git/hooks/pre-commit")
    assert freely(program, victim).worked
    assert victim.was_hit()
    assert kept(box, attack(box, repository, program, victim), victim)


def test_protected_file_is_not_replaced(box: Box, repository: Path) -> None:
    """Remove it and make a new one; or rename another file over it."""
    program = python("""
        try:
            os.unlink(args[0])
        except OSError:
            with open(args[0] + ".new", "w") as file:
                file.write("changed")
            os.rename(args[0] + ".new", args[0])
        else:
            open(args[0], "w").write("changed")
        worked()
    """)
    victim = Victim(repository / ".git/config")
    assert freely(program, victim).worked
    assert victim.was_hit()
    assert kept(box, attack(box, repository, program, victim), victim)


def test_second_name_of_a_protected_file_is_not_written(box: Box, repository: Path) -> None:
    """A hard link to it in the workspace, and write that."""
    program = python("""
        os.link(args[0], args[1])
        open(args[1], "w").write("changed")
        worked()
    """)
    victim = Victim(repository / ".git/config")
    assert freely(program, victim, repository / "free").worked
    assert victim.was_hit()
    assert kept(box, attack(box, repository, program, victim, repository / "inside"), victim)


@pytest.mark.parametrize("moved", [".git", ".git/hooks", ".git/modules", ".git/modules/sub"])
def test_folder_above_a_protected_file_is_not_exchanged(
    box: Box, repository: Path, moved: str
) -> None:
    """Rename a folder above it and make another one in its place, as `mv .git x` does."""
    program = python("""
        os.rename(args[0], args[0] + ".old")
        os.makedirs(os.path.dirname(args[1]))
        open(args[1], "w").write("changed")
        worked()
    """)
    name = ".git/modules/sub/config" if "modules" in moved else ".git/hooks/pre-commit"
    victim = Victim(repository / name)
    folder = repository / moved
    assert freely(program, folder, victim).worked
    assert victim.was_hit()
    subprocess.run(["rm", "-r", str(folder)], check=True)
    os.rename(f"{folder}.old", folder)
    victim.reset()
    assert kept(box, attack(box, repository, program, folder, victim), victim)


def test_folder_of_hooks_is_not_a_symlink_afterwards(box: Box, repository: Path) -> None:
    """Exchange the folder of hooks with a symlink to one of the attacker's."""
    program = python("""
        os.mkdir("mine")
        open("mine/pre-commit", "w").write("changed")
        os.rename(".git/hooks", ".git/hooks.old")
        os.symlink("../mine", ".git/hooks")
        worked()
    """)
    hooks = repository / ".git/hooks"
    victim = Victim(hooks / "pre-commit")
    assert freely(program, cwd=repository).worked
    hooks.unlink()
    os.rename(f"{hooks}.old", hooks)
    (repository / "mine" / "pre-commit").unlink()
    (repository / "mine").rmdir()
    ran = attack(box, repository, program)
    assert kept(box, ran, victim)
    assert not hooks.is_symlink()


def test_folder_that_hooks_path_names_is_protected(box: Box, repository: Path) -> None:
    """core.hooksPath leads git to a folder of the project: the hooks there run just the same."""
    (repository / "scripts").mkdir()
    victim = Victim(repository / "scripts" / "pre-commit")
    config = repository / ".git/config"
    config.write_text(config.read_text() + "[core]\n\thooksPath = scripts\n")
    assert freely(WRITE, victim).worked
    assert victim.was_hit()
    assert kept(box, attack(box, repository, WRITE, victim), victim)


APPEARING = {
    ".git/commondir": "another folder as git's own: its config and hooks are used",
    ".git/config.worktree": "a second config",
    ".git/info/grafts": "another history than the commits have",
    ".envrc": "direnv runs it",
    ".mcp.json": "agents start the programs in it",
    ".jj/repo": "leads jj to another repository, with its settings",
    ".devcontainer/devcontainer.json": "initializeCommand runs on the host",
}


@pytest.mark.parametrize("name", APPEARING)
def test_protected_file_that_was_not_there_does_not_stay(
    box: Box, repository: Path, name: str
) -> None:
    """Create what did not exist: no mount can protect it, so it is watched for and moved aside."""
    program = python("""
        os.makedirs(os.path.dirname(args[0]), exist_ok=True)
        open(args[0], "w").write("changed")
        worked()
    """)
    path = repository / name
    assert freely(program, path).worked
    path.unlink()
    if name.startswith(".devcontainer"):
        path.parent.rmdir()
    ran = attack(box, repository, program, path)
    assert not path.exists()
    assert any(denial["kind"] == "protected_path" for denial in ran.denials), ran.story


def test_moving_aside_follows_no_symlink(box: Box, repository: Path, victim: Victim) -> None:
    """What appears is a symlink to a file outside: the daemon must not move that."""
    program = python("os.symlink(args[1], args[0]); worked()")
    path = repository / ".envrc"
    assert freely(program, path, victim).worked
    path.unlink()
    attack(box, repository, program, path, victim)
    assert not path.is_symlink()
    assert victim.untouched


def test_unfinished_rebase_with_a_command_in_it_does_not_stay(box: Box, repository: Path) -> None:
    """`exec` in git-rebase-todo runs at the user's next `git rebase --continue`."""
    program = python("""
        os.mkdir(args[0])
        open(args[0] + "/git-rebase-todo", "w").write("exec touch ran\\n")
        worked()
    """)
    todo = repository / ".git/rebase-merge"
    assert freely(program, todo).worked
    (todo / "git-rebase-todo").unlink()
    todo.rmdir()
    ran = attack(box, repository, program, todo)
    assert not (todo / "git-rebase-todo").exists()
    assert any(denial["kind"] == "protected_path" for denial in ran.denials), ran.story


def test_protection_lost_by_a_rename_on_the_host_ends_the_command(
    box: Box, repository: Path
) -> None:
    """`git config` on the host renames a file over the mount point: the mount inside is gone.

    The command waits for the end of its input before it writes, and firm walls end it before that.
    """
    victim = Victim(repository / ".git/config")
    program = python("""
        print("up", flush=True)
        sys.stdin.read()
        open(args[0], "w").write("changed")
        worked()
    """)
    with box.daemon.connect() as connection:
        params = {"argv": [*program, str(victim)], "preset": "workspace-write",
                  "workspace": str(repository), "stream": True, "capture": True,
                  "stdin_open": True, "execution_id": "waiting"}  # fmt: skip
        request = connection.start("execute", params)
        connection.wait_until(
            lambda: "up" in connection.output("waiting") or connection.has_answered(request)
        )
        saved = repository / ".git/config.lock"
        saved.write_text("saved by the host\n")
        saved.rename(victim.path)
        if not box.firm:
            connection.call("execution/close_stdin", {"execution_id": "waiting"})
        result = connection.result(request)
    if box.firm:
        assert result["outcome"] == "isolation_lost", result
        assert victim.path.read_text() == "saved by the host\n"
        # What it printed is no answer: it may have read what was masked.
        assert (result["stdout"]["data"], result["stdout"]["bytes"]) == ("", len("up\n")), result
    else:
        assert result["stdout"]["data"].startswith("up\n"), result
        assert any(denial["kind"] == "protected_path" for denial in result["denials"]), result
        assert victim.path.read_text() != "changed"


def test_work_goes_on(box: Box, repository: Path) -> None:
    """The control of it all: what is not protected can be written, and git can commit."""
    script = """
        echo text > file && git add file &&
        git -c user.name=t -c user.email=t@example.org commit --quiet -m x && git log --oneline
    """
    ran = box.shell(script, preset="workspace-write", workspace=str(repository))
    assert ran.exited(0), ran.raw
    assert Verdict(True, ran.stdout).words.endswith(" x\n")
