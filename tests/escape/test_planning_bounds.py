"""A command leaves more than a plan can protect: the workspace can be used by the next one, and
nothing that was protected is open because of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.attacks import Box, python
from support.git_attacks import git, make_repository
from support.rpc import RpcError

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


# In a new folder, which is the current one; `src` is the user's.
NO_FOLDERS = {
    "a loop of links": "ln -s .git .git",
    "a pipe": "mkfifo .git",
    "bin": "git init -q . && ln -s bin bin",
    ".config": "git init -q . && ln -s /etc .config",
    ".github and mise": "git init -q . && ln -s x .github && ln -s ../src mise",
    "others": "mkdir .hg && ln -s ../src .jj && ln -s ../src _darcs && ln -s x .sl",
    "an .hg": "ln -s x .hg",
}


@pytest.mark.parametrize("kind", NO_FOLDERS)
def test_links_and_pipes_in_the_place_of_folders(
    box: Box, workspace: Path, params: dict[str, str], kind: str
) -> None:
    own = make_repository(workspace)
    (workspace / "src").mkdir()
    left = box.shell(f"mkdir made && cd made && {NO_FOLDERS[kind]}", **params)
    assert left.exited(0), left.story
    hook = own / ".git/hooks/pre-commit"
    ran = box.run(*WRITE, str(own / "src/new"), str(hook), **params)
    assert (own / "src/new").exists(), ran.story
    assert not hook.exists()


def test_the_users_links_in_the_place_of_folders(
    box: Box, workspace: Path, params: dict[str, str]
) -> None:
    """What is protected by the link's name is so where the link leads, and nothing else there."""
    for folder in (make_repository(workspace), make_repository(workspace / "nested")):
        (folder / "src").mkdir()
        (folder / "bin").symlink_to("src")
    script = "for d in . nested; do echo x > $d/bin/new; echo x > $d/src/hermit; done; sleep 0.3"
    ran = box.shell(script, **params)
    for folder in (workspace, workspace / "nested"):
        assert (folder / "src/new").exists(), ran.story
        assert not (folder / "src/hermit").exists(), ran.story
        assert (folder / "bin").is_symlink()


def test_a_link_on_the_way_to_the_hooks_is_not_replaced(
    box: Box, workspace: Path, params: dict[str, str]
) -> None:
    """Put a folder with a hook in the place of a link that core.hooksPath leads through."""
    own = make_repository(workspace)
    (own / "scripts" / "x").mkdir(parents=True)
    (own / "tools").symlink_to("scripts")
    git(own, "config", "core.hooksPath", "tools/x")
    script = """rm -f tools; mkdir -p tools/x; cd tools/x
        printf '#!/bin/sh\ntouch ../../ran\n' > pre-commit; chmod +x pre-commit"""
    ran = box.shell(script, **params)
    assert not (own / "tools/x/pre-commit").exists(), ran.story
    git(own, "commit", "--allow-empty", "-qm", "second")
    assert not (own / "ran").exists()


def test_more_folders_of_repositories_than_can_be_protected(
    box: Box, workspace: Path, params: dict[str, str]
) -> None:
    """The workspace can only be read then, but for a project that is named."""
    assert box.shell("for i in $(seq 170); do mkdir -p r$i/.git; done", **params).exited(0)
    own = make_repository(workspace / "zz" / "own")
    hook, new = own / ".git/hooks/pre-commit", workspace / "new"
    ran = box.run(*WRITE, str(new), str(own / "new"), str(hook), **params)
    assert (new.exists(), (own / "new").exists(), hook.exists()) == (False, False, False), ran.story
    assert any(f"can only read {workspace}: " in one for one in ran.raw["warnings"])
    assert box.shell("ls -d r*", **params).stdout.count("r") == 170
    granted = {"fs_write_allow": [str(own), str(workspace)]}
    ran = box.run(*WRITE, str(new), str(own / "new"), str(hook), manifest=granted, **params)
    assert (new.exists(), (own / "new").exists(), hook.exists()) == (False, True, False), ran.story
    for number in range(100, 171):
        (workspace / f"r{number}").rename(workspace.parent / f"r{number}")
    assert box.run(*WRITE, str(new), **params).exit_code == 42
    assert new.exists()


def test_more_folders_of_repositories_in_another_writable_folder(
    box: Box, workspace: Path, params: dict[str, str]
) -> None:
    other = workspace.parent / "other"
    for number in range(170):
        (other / f"r{number}" / ".git").mkdir(parents=True)
    with pytest.raises(RpcError) as refused:
        box.run("true", manifest={"fs_write_allow": [str(other)]}, **params)
    assert refused.value.kind == "PathDenied"
    assert "projects" in str(refused.value.remedy)


def test_many_closed_folders(box: Box, workspace: Path, params: dict[str, str]) -> None:
    script = "for i in $(seq 40); do mkdir c$i; chmod 000 c$i; done"
    assert box.shell(script, **params).exited(0)
    try:
        if box.firm:
            ran = box.run(*WRITE, str(workspace / "new"), **params)
            assert (workspace / "new").exists(), ran.story
    finally:
        for number in range(1, 41):
            (workspace / f"c{number}").chmod(0o700)


def test_what_was_moved_aside_is_no_repository(
    box: Box, workspace: Path, params: dict[str, str]
) -> None:
    """A git dir that was moved aside looks like a bare repository."""
    made = box.shell("for d in .sandboxd-kept z; do git init -q --bare $d/1/a; done", **params)
    assert (workspace / ".sandboxd-kept/1/a/HEAD").exists(), made.story
    said = " ".join(made.raw["warnings"])
    assert f"repository in {workspace}/z/1/a" in said
    assert ".sandboxd-kept" not in said


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
