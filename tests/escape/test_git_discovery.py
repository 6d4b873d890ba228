"""Which repository git finds from a workspace must not change: `git status` would run its code.

Each control runs the attack freely, then git as the user would, and sees the program run.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.attacks import Box, freely, python
from support.git_attacks import HOW, attack, git, is_reported, make_repository
from support.rpc import RpcError

pytestmark = [pytest.mark.isolation, pytest.mark.requires("git")]

# A git dir whose config runs a program at every status. args: its folder, the workspace.
EVIL = """
    import shutil
    def evil(folder, tree):
        os.makedirs(folder + "/objects", exist_ok=True)
        os.makedirs(folder + "/refs", exist_ok=True)
        open(folder + "/monitor", "w").write("#!/bin/sh\\ntouch " + tree + "/ran\\n")
        os.chmod(folder + "/monitor", 0o755)
        open(folder + "/config", "w").write(
            "[core]\\n\\trepositoryformatversion = 0\\n\\tbare = false\\n\\tworktree = " + tree
            + "\\n\\tfsmonitor = " + folder + "/monitor\\n")
        open(folder + "/HEAD", "w").write("ref: refs/heads/main\\n")
    tree = args[0]
"""
ATTACKS = {
    "top folder, HEAD of .git moved away": """
        os.rename(tree + "/.git/HEAD", tree + "/.git/ORIG_HEAD")
        evil(tree, tree)
    """,
    "top folder, objects of .git moved away": """
        os.rename(tree + "/.git/objects", tree + "/.git/logs/objects")
        evil(tree, tree)
    """,
    "top folder, refs of .git moved into the tree": """
        os.rename(tree + "/.git/refs", tree + "/.git/rr-cache")
        evil(tree, tree)
    """,
    "top folder, HEAD of .git emptied": """
        open(tree + "/.git/HEAD", "w").close()
        evil(tree, tree)
    """,
    "top folder, HEAD is a folder": """
        os.unlink(tree + "/.git/HEAD")
        os.mkdir(tree + "/.git/HEAD")
        evil(tree, tree)
    """,
    "top folder, refs removed": """
        shutil.rmtree(tree + "/.git/refs")
        evil(tree, tree)
    """,
    "top folder through links": """
        os.unlink(tree + "/.git/HEAD")
        evil(tree + "/made", tree)
        for name in ("objects", "refs", "config", "HEAD"):
            os.symlink("made/" + name, tree + "/" + name) if name != "HEAD" else \
                shutil.copy(tree + "/made/HEAD", tree + "/HEAD")
    """,
}


@pytest.fixture
def repository(workspace: Path) -> Path:
    return make_repository(workspace)


def runs_code(folder: Path) -> bool:
    """Whether the user's next git status runs the program."""
    git(folder, "status", check=False)
    ran = folder / "ran"
    found = ran.exists()
    ran.unlink(missing_ok=True)
    return found


@pytest.mark.parametrize("name", ATTACKS)
def test_control(workspace: Path, name: str) -> None:
    repository = make_repository(workspace)
    assert freely(python(EVIL, ATTACKS[name], "worked()"), repository).worked
    assert runs_code(repository)


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("name", ATTACKS)
def test_another_repository_is_not_found(box: Box, repository: Path, name: str, how: str) -> None:
    ran = attack(box, how, repository, python(EVIL, ATTACKS[name], "worked()"), repository)
    assert not runs_code(repository), ran.story
    assert is_reported(ran), ran.story
    assert git(repository, "rev-parse", "--git-dir").strip() == ".git"
    gone = "refs removed" in name
    assert git(repository, "log", "--format=%s", check=not gone) == ("" if gone else "first\n")


@pytest.mark.parametrize("how", HOW)
def test_a_workspace_without_a_repository_does_not_become_one(
    box: Box, workspace: Path, how: str
) -> None:
    program = python(EVIL, "evil(tree, tree); worked()")
    assert freely(program, workspace).worked
    assert runs_code(workspace)
    for name in ("HEAD", "config", "monitor"):
        (workspace / name).unlink()
    for name in ("objects", "refs"):
        (workspace / name).rmdir()
    ran = attack(box, how, workspace, program, workspace)
    assert not runs_code(workspace)
    assert not (workspace / "HEAD").exists()
    assert is_reported(ran), ran.story


def test_a_slow_attack_is_ended(box: Box, repository: Path) -> None:
    """While the command runs, the user's editor runs git: it must not come to that."""
    program = python(
        EVIL,
        """
        os.unlink(tree + "/.git/HEAD")
        evil(tree, tree)
        time.sleep(50)
        worked()
    """,
    )
    ran = attack(box, "cold", repository, program, repository)
    assert ran.exit_code != 42
    assert is_reported(ran), ran.story
    assert not runs_code(repository)


LOOKALIKE = {
    "names only": "text, and no reference\n",
    "a whole git dir": "ref: refs/heads/main\n",
}


@pytest.mark.parametrize("head", LOOKALIKE.values(), ids=LOOKALIKE)
def test_names_of_a_git_dir_beside_git_switch_nothing_off(
    box: Box, repository: Path, head: str
) -> None:
    """The hooks of the valid `.git` stay protected, and the project's files stay writable."""
    (repository / "HEAD").write_text(head)
    for name in ("objects", "refs"):
        (repository / name).mkdir()
    program = python("""
        open(args[0] + "/objects/data", "w").write("x")
        open(args[0] + "/other", "w").write("x")
        path = args[0] + "/.git/hooks/post-checkout"
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as hook:
            hook.write("#!/bin/sh\\ntouch ran\\n")
            os.chmod(hook.fileno(), 0o755)
        worked()
    """)
    hook = repository / ".git/hooks/post-checkout"
    assert freely(program, repository).worked
    assert hook.exists()
    hook.unlink()
    (repository / "other").unlink()
    attack(box, "cold", repository, program, repository)
    assert not hook.exists()
    assert (repository / "other").exists()
    ran = box.shell("git status && echo x >> HEAD.md", preset="workspace-write",
                    workspace=str(repository))  # fmt: skip
    assert ran.exited(0), ran.story


@pytest.mark.parametrize("what", [".git", "."])
@pytest.mark.parametrize("how", HOW)
def test_rights_of_the_git_dir_are_given_back(
    box: Box, repository: Path, what: str, how: str
) -> None:
    """`chmod 000 .git` must not lock the user out."""
    program = python("os.chmod(args[0], 0); worked()")
    folder = repository / what
    before = folder.stat().st_mode
    assert freely(program, folder).worked
    assert folder.stat().st_mode != before
    folder.chmod(before & 0o7777)
    attack(box, how, repository, program, folder)
    assert folder.stat().st_mode == before
    assert os.listdir(folder)


@pytest.mark.parametrize("name", [".git/hooks/pre-commit", ".git/config", ".envrc"])
def test_a_repository_above_the_workspace_is_protected_where_it_is_writable(
    box: Box, workspace: Path, name: str
) -> None:
    """Git finds it from the workspace, which is a folder of it."""
    repository = make_repository(workspace)
    (repository / "sub").mkdir()
    path = repository / name
    program = python("""
        os.makedirs(os.path.dirname(args[0]), exist_ok=True)
        open(args[0], "a").write("\\n# changed\\n")
        worked()
    """)
    before = path.read_bytes() if path.exists() else None
    assert freely(program, path).worked
    if before is None:
        path.unlink()
    else:
        path.write_bytes(before)
    box.run(*program, str(path), preset="workspace-write", workspace=str(repository / "sub"),
            manifest={"fs_write_allow": [str(repository)]})  # fmt: skip
    assert (path.read_bytes() if path.exists() else None) == before


def test_a_git_dir_without_rights_is_refused_with_advice_that_helps(
    box: Box, repository: Path
) -> None:
    git_dir = repository / ".git"
    git_dir.chmod(0)
    with pytest.raises(RpcError) as refused:
        box.run("/bin/true", preset="workspace-write", workspace=str(repository))
    assert f"chmod u+rwx {git_dir}" in str(refused.value.remedy)
    git_dir.chmod(0o755)
    assert box.run("/bin/true", preset="workspace-write", workspace=str(repository)).exited(0)
