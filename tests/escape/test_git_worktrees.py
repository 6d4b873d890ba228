"""A linked worktree as the workspace: it needs little of what it shares with the main checkout."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest
from support.attacks import Box, freely, python
from support.git_attacks import (
    HOW,
    attack,
    content,
    each_and_all,
    git,
    is_reported,
    make_repository,
)

pytestmark = [pytest.mark.isolation, pytest.mark.requires("git")]


@pytest.fixture
def main(workspace: Path) -> Path:
    return make_repository(workspace / "main")


@pytest.fixture
def worktree(main: Path) -> Path:
    git(main, "worktree", "add", "-q", "-b", "side", "../tree")
    return main.parent / "tree"


BROKEN = {
    "index": "not an index",
    "HEAD": "",
    "hooks/post-checkout": "#!/bin/sh\ntouch ran\n",
    "config": "[core]\n\tfsmonitor = evil\n",
    "config.worktree": "[core]\n\tfsmonitor = evil\n",
    "rebase-merge/git-rebase-todo": "exec evil\n",
    "info/attributes": "* filter=x\n",
    "worktrees/tree/config.worktree": "[core]\n\tfsmonitor = evil\n",
    "worktrees/tree/commondir": "/evil\n",
    "worktrees/tree/gitdir": "/evil\n",
    "worktrees/tree/HEAD": "",
    "worktrees/tree/index": "not an index",
}


@pytest.mark.parametrize(("how", "names"), each_and_all(BROKEN))
def test_the_common_dir_keeps_what_runs_code(
    box: Box, main: Path, worktree: Path, names: tuple[str, ...], how: str
) -> None:
    program = python("""
        done = []
        for path, text in zip(args[::2], args[1::2]):
            try:
                os.makedirs(os.path.dirname(path), exist_ok=True)
                open(path, "w").write(text)
            except OSError:
                continue
            done.append(path)
        worked(len(done)) if done else blocked()
    """)
    paths = {main / ".git" / name: BROKEN[name] for name in names}
    words = [word for pair in paths.items() for word in pair]
    before = {path: content(path) for path in paths}
    assert freely(program, *words).words == str(len(paths))
    for path, old in before.items():
        if old is None:
            path.unlink()
            if path.parent.name == "rebase-merge":
                path.parent.rmdir()
        else:
            path.write_bytes(old)
    ran = attack(box, how, worktree, program, *words)
    assert {path: content(path) for path in paths} == before, ran.story
    assert ran.exit_code != 42 or is_reported(ran), ran.story


def test_work_in_a_worktree_goes_on(box: Box, main: Path, worktree: Path) -> None:
    script = """
        set -e
        git config --get-all user.name || true
        export GIT_AUTHOR_NAME=t GIT_AUTHOR_EMAIL=t@e GIT_COMMITTER_NAME=t GIT_COMMITTER_EMAIL=t@e
        export GIT_EDITOR=true
        echo 1 > new; git add new; git commit -qm one
        echo 2 > new; git commit -qam two
        git branch other HEAD~1; git branch -q -D other
        git rebase -q -f HEAD~1
        git stash list; echo 3 > new; git stash -q; git stash pop -q; git checkout -q new
        git fetch -q . side:refs/heads/copy
        git tag v1; git pack-refs --all; git tag -d v1 >/dev/null
        git gc -q
        git log --format=%s
    """
    ran = box.shell(script, preset="workspace-write", workspace=str(worktree))
    assert ran.exited(0), ran.story
    assert ran.stdout.endswith("two\none\nfirst\n")
    # `git branch -D` tries to clean up in .git/config, and says that it cannot.
    assert {d["target"][-12:] for d in ran.denials} <= {"/.git/config"}, ran.story
    assert git(main, "status", "--porcelain") == ""


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("name", ["HEAD", "index"])
def test_a_harmless_change_of_the_main_checkout_is_told(
    box: Box, main: Path, worktree: Path, name: str, how: str
) -> None:
    """It cannot be undone: the user's own git may have made it."""
    program = python("""
        data = open(args[0], "rb").read()
        os.unlink(args[0])
        open(args[0], "wb").write(data)
        worked()
    """)
    path = main / ".git" / name
    assert freely(program, path).worked
    ran = attack(box, how, worktree, program, path)
    assert any(str(path) in warning for warning in ran.raw["warnings"]), ran.story
    git(worktree, "status")


@pytest.mark.parametrize("how", HOW)
def test_work_in_the_worktree_warns_about_nothing(box: Box, worktree: Path, how: str) -> None:
    program = python("""
        import subprocess
        open("new", "w").close()
        subprocess.run(["git", "add", "new"], check=True)
        subprocess.run(
            ["git", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x"], check=True
        )
        worked()
    """)
    ran = attack(box, how, worktree, program)
    assert ran.raw["warnings"] == []


# What is written to worktrees/NAME; @ stands for a folder outside, # for the workspace.
MISLEADING = {
    "outside": ("gitdir", "@/outside/.git"),
    "bare": ("gitdir", "@/bare"),
    "blanks": ("gitdir", "@/blanks/.git \t\n\n"),
    "inside": ("gitdir", "#/user/.git"),
    "relative": ("gitdir", "../outside/.git"),
    "common": ("commondir", "#/evil/.git"),
}
PLANT = """
    git init -q evil
    for name in {names}; do git worktree add -q made-$name; done
"""


@pytest.mark.parametrize("how", HOW)
def test_the_repair_of_a_worktree_writes_nowhere_else(
    box: Box, workspace: Path, outside: Path, how: str
) -> None:
    """`common` decides which repository git uses in the worktree."""
    control = make_repository(outside.parent / "control")
    victims = [repository / "user" for repository in (make_repository(workspace), control)]
    for victim in (*victims, *(outside / name for name in MISLEADING)):
        victim.mkdir()

    def script(repository: Path) -> str:
        lines = [PLANT.format(names=" ".join(MISLEADING))]
        for name, (file, text) in MISLEADING.items():
            said = text.replace("@", str(outside)).replace("#", str(repository))
            lines.append(f"printf '{said}' > .git/worktrees/made-{name}/{file}")
        return "\n".join(lines)

    def repaired(repository: Path) -> list[str]:
        folders = {name: outside / name for name in MISLEADING} | {"inside": repository / "user"}
        git(repository, "worktree", "repair", check=False)
        git(repository / "user", "worktree", "repair", check=False)
        found = [name for name, folder in folders.items() if (folder / ".git").exists()]
        for name in found:
            (folders[name] / ".git").unlink()
        common = "rev-parse", "--path-format=absolute", "--git-common-dir"
        used = git(repository / "made-common", *common, check=False)
        return sorted([*found, *(["common"] if "evil" in used else [])])

    ran = attack(box, how, workspace, ("sh", "-ec", script(workspace)))
    assert ran.exited(0), ran.story
    assert repaired(workspace) == [], ran.story
    assert {d["target"] for d in ran.denials} >= {
        str(workspace / ".git/worktrees" / f"made-{name}") for name in MISLEADING
    }, ran.story
    subprocess.run(["sh", "-ec", script(control)], cwd=control, check=True)
    assert repaired(control) == sorted(set(MISLEADING) - {"relative"})


def test_worktrees_that_a_command_adds_stay(box: Box, main: Path) -> None:
    """Also those whose folder nobody outside can see, and those whose folder is removed."""
    sandbox = box.connection.call(
        "sandbox/create", {"preset": "workspace-write", "workspace": str(main)}
    )["sandbox"]
    try:
        add = "git worktree add -q here && git worktree add -q $TMPDIR/there && "
        add += "git worktree add -q gone && rm -r gone"
        ran = box.shell(f"export TMPDIR=${{TMPDIR:-/tmp}}; {add}", sandbox=sandbox, cwd=str(main))
        assert ran.exited(0), ran.story
        assert not is_reported(ran), ran.story
        look = "git -C here status -s && git -C ${TMPDIR:-/tmp}/there status -s"
        ran = box.shell(look, sandbox=sandbox, cwd=str(main))
        assert ran.exited(0), ran.story
        assert git(main / "here", "branch", "--show-current") == "here\n"
    finally:
        box.connection.call("sandbox/destroy", {"sandbox": sandbox})


# In a worktree that the command adds: what makes git run a program there, by an index that leads
# into another repository and by an unfinished rebase.
ARMED = {
    "index": """
        git init -q made/sub && git -C made/sub commit -q --allow-empty -m x
        printf '#!/bin/sh\\ntouch %s/ran\\n' "$PWD" > monitor && chmod +x monitor
        git -C made/sub config core.fsmonitor "$PWD/monitor"
        git -C made/sub update-index --fsmonitor
        git -C made add sub 2> /dev/null
    """,
    "rebase-merge": """
        git -C made commit -q --allow-empty -m y
        git -C made rebase -q -x false HEAD~1 2> /dev/null || true
        echo "exec touch $PWD/ran" > .git/worktrees/made/rebase-merge/git-rebase-todo
    """,
}
USED = {"index": ("status",), "rebase-merge": ("rebase", "--continue")}


@pytest.mark.parametrize("how", [*HOW, "left running"])
@pytest.mark.parametrize("name", ARMED)
def test_a_worktree_that_a_command_adds_runs_no_program(
    box: Box, workspace: Path, name: str, how: str
) -> None:
    control = make_repository(workspace.parent / "control")
    repository = make_repository(workspace)
    names = "GIT_AUTHOR_NAME GIT_AUTHOR_EMAIL GIT_COMMITTER_NAME GIT_COMMITTER_EMAIL"
    known = " ".join(f"{one}=t" for one in names.split())
    add = f"export {known}; git worktree add -q made"

    def runs_code(folder: Path) -> bool:
        (folder / "ran").unlink(missing_ok=True)
        git(folder / "made", *USED[name], check=False)
        return (folder / "ran").exists()

    if how == "left running":
        wait = "while [ ! -e folder/go ]; do sleep 0.05; done"
        script = f"{add}; mkdir folder; ({wait}\n{ARMED[name]}\nsleep 60) > /dev/null 2>&1 &"
        params = {"preset": "workspace-write", "workspace": str(repository)}
        sandbox = box.connection.call("sandbox/create", params)["sandbox"]
        assert box.shell(script, sandbox=sandbox, cwd=str(repository)).exited(0)
        (repository / "folder/go").touch()
        # The index, or what would run behind it: whichever look comes first.
        kept = f"*%2Fworktrees%2Fmade%2F{name}", "*made%2Fsub%2F%2Egit%2Fconfig"
        deadline = time.monotonic() + 60
        while not any(list(repository.glob(f".sandboxd-kept/*/{one}")) for one in kept):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        box.connection.call("sandbox/destroy", {"sandbox": sandbox})
        assert not runs_code(repository)
    else:
        ran = attack(box, how, repository, ("sh", "-ec", f"{add}\n{ARMED[name]}"))
        assert ran.exited(0), ran.story
        assert not runs_code(repository), ran.story
        inner = f"{repository}/.git/worktrees/made/{name}"
        assert inner in {d["target"] for d in ran.denials}, ran.story
    subprocess.run(["sh", "-ec", f"{add}\n{ARMED[name]}"], cwd=control, check=True)
    assert runs_code(control)


def test_a_worktree_with_a_submodule_goes_on(box: Box, main: Path, outside: Path) -> None:
    """Its git dir lies in the worktree's state, and names the submodule's folder."""
    make_repository(main / "source")
    allow = "-c", "protocol.file.allow=always"
    git(main, *allow, "submodule", "--quiet", "add", "./source", "sub")
    git(main, "commit", "-q", "-m", "with a submodule")
    script = "git worktree add -q made && cd made && git -c protocol.file.allow=always "
    script += f"-c submodule.sub.url={main}/source submodule update -q --init sub"
    ran = attack(box, "cold", main, ("sh", "-ec", script))
    assert git(main / "made", "submodule", "status").startswith(" "), ran.story
    reported = [d["target"] for d in ran.denials if d["kind"] == "protected_path"]
    assert not [path for path in reported if "worktrees" in path], ran.story
