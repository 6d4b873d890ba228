"""A command leaves more than a plan can protect: the workspace can be used by the next one, and
nothing that was protected is open because of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.attacks import Box, python
from support.git_attacks import git, make_repository

pytestmark = [pytest.mark.isolation, pytest.mark.requires("git")]

# In a new repository, which is the current folder.
TOO_MUCH = {
    "names": "for i in $(seq 4000); do : > .git/name$i; done",
    "programs": """for i in $(seq 600); do printf '[filter "%s"]\\n\\tclean = ./x%s\\n' $i $i
        done >> .git/config""",
    "a long line": "printf '[core]\\n\\tpager = %s\\n' $(seq -s, 3000) >> .git/config",
    "existing programs": """for i in $(seq 300); do : > x$i
        printf '[filter "%s"]\\n\\tclean = ./x%s\\n' $i $i >> .git/config; done""",
    "settings": "head -c 3000000 /dev/zero | tr '\\\\0' ';' >> .git/config",
    "modules": """for i in $(seq 200); do mkdir -p .git/modules/$i/objects
        echo ref: refs/heads/x > .git/modules/$i/HEAD; : > .git/modules/$i/config; done""",
    "no access": "chmod 000 .git",
}
WRITE = python("""
    written = []
    for path in args:
        try:
            with open(path, "a") as file:
                file.write("# changed")
            written.append(path)
        except OSError:
            pass
    worked(len(written))
""")


@pytest.fixture
def params(workspace: Path) -> dict[str, str]:
    return {"preset": "workspace-write", "workspace": str(workspace)}


@pytest.mark.parametrize("kind", TOO_MUCH)
def test_a_workspace_stays_usable(
    box: Box, workspace: Path, params: dict[str, str], kind: str
) -> None:
    """`zz` is the user's own, and comes last in every order."""
    own = make_repository(workspace / "zz")
    left = box.shell(f"git init -q a/made && cd a/made && {TOO_MUCH[kind]}", **params)
    assert left.exited(0), left.story
    before = (own / ".git/config").read_bytes()
    places = [own / ".git/config", workspace / "a/made/.git/config", workspace / "new"]
    ran = box.run(*WRITE, *map(str, places), **params)
    (workspace / "a/made/.git").chmod(0o700)
    assert ran.exit_code == 42, ran.story
    assert (workspace / "new").exists()
    assert (own / ".git/config").read_bytes() == before
    assert b"# changed" not in (workspace / "a/made/.git/config").read_bytes()
    said = [
        one for one in ran.raw["warnings"] if f"commands can only read {workspace}/a/made:" in one
    ]
    assert len(said) == 1, ran.raw["warnings"]
    script = "cd zz && echo x > y && git add y && git -c user.name=t -c user.email=t commit -qm y"
    assert box.shell(script, **params).exited(0)
    assert git(own, "log", "-1", "--format=%s") == "y\n"


def test_many_repositories(box: Box, workspace: Path, params: dict[str, str]) -> None:
    """Each with all that is protected: together they would be thousands of mounts."""
    own = make_repository(workspace)
    names = ".envrc .vscode .idea .zed .husky .mcp.json .claude .cursor .exrc .gdbinit .vim"
    script = f"""for i in $(seq 30); do git init -q $i; cd $i; : > .git/config.worktree
        for j in $(seq 40); do : > .git/name$j; done; mkdir {names}; cd ..; done"""
    assert box.shell(script, **params).exited(0)
    hook = own / ".git/hooks/pre-commit"
    ran = box.run(*WRITE, str(own / "new"), str(hook), **params)
    assert (own / "new").exists(), ran.story
    assert not hook.exists()
    assert any("commands can only read" in one for one in ran.raw["warnings"])


@pytest.mark.parametrize("number", [60, 400], ids=["each read-only", "their folder read-only"])
def test_repositories_that_a_command_makes_push_none_out(
    box: Box, workspace: Path, params: dict[str, str], number: int
) -> None:
    """More than are protected one by one, and before the user's own in every order."""
    own = make_repository(workspace / "zz" / "own")
    script = f"""for i in $(seq {number}); do mkdir -p 0/$i/.git; done"""
    assert box.shell(script, **params).exited(0)
    hook, config = own / ".git/hooks/post-checkout", own / ".git/config"
    before = config.read_bytes()
    ran = box.run(*WRITE, str(hook), str(config), str(workspace / "new"), **params)
    assert (workspace / "new").exists(), ran.story
    assert (hook.exists(), config.read_bytes()) == (False, before), ran.story
    assert any("more than 32 repositories" in one for one in ran.raw["warnings"])


def test_a_new_repository_at_the_top(box: Box, workspace: Path, params: dict[str, str]) -> None:
    assert box.shell(f"git init -q . && {TOO_MUCH['names']}", **params).exited(0)
    config = workspace / ".git/config"
    before = config.read_bytes()
    ran = box.run(*WRITE, str(config), str(workspace / "new"), **params)
    assert (workspace / "new").exists(), ran.story
    assert config.read_bytes() == before
    said = " ".join(ran.raw["warnings"])
    assert f"commands can only read {workspace}/.git: " in said
    assert "remove them" in said


@pytest.mark.parametrize("what", ["files", "bytes"])
def test_a_large_protected_folder_takes_nothing_from_others(
    box: Box, workspace: Path, params: dict[str, str], what: str
) -> None:
    """Where nothing is mounted over it, what is protected is read before the command."""
    own = make_repository(workspace / "zz")
    hook = own / ".git/hooks/pre-commit"
    hook.write_text("of the user")
    large = make_repository(workspace / "a") / ".vscode"
    for step, count in enumerate((1000, 100, 10, 1)):  # what is left over is used up, too
        for number in range(25):
            folder = large / f"{step}-{number}"
            folder.mkdir(parents=True)
            if what == "bytes":
                (folder / "file").write_bytes(b"x" * count * 500)
                continue
            for name in range(count):
                (folder / str(name)).touch()
    ran = box.run(*WRITE, str(own / "new"), str(hook), **params)
    assert (own / "new").exists(), ran.story
    assert hook.read_text() == "of the user"
