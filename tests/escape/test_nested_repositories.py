"""Repositories in folders of the workspace: those that were there are protected, new ones named."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
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
    wait_for,
)

pytestmark = [pytest.mark.isolation, pytest.mark.requires("git")]

# Tries every path, whatever becomes of the others.
PUT = python("""
    refused = None
    for path in args:
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "a") as file:
                file.write("\\n# changed\\n")
                os.chmod(file.fileno(), 0o755)
        except OSError as error:
            refused = error
    if refused is not None:
        raise refused
    worked()
""")
PLACES = ["vendor/lib", "p1", "a/b/c/deep"]
NAMES = [".git/hooks/pre-commit", ".git/config", ".git/commondir", ".envrc", ".vscode/tasks.json"]


@pytest.mark.parametrize("is_repository", [True, False], ids=["in a repository", "in a folder"])
@pytest.mark.parametrize("name", NAMES)
def test_an_existing_repository_keeps_what_runs_code(
    box: Box, workspace: Path, name: str, is_repository: bool
) -> None:
    if is_repository:
        make_repository(workspace)
    paths = [make_repository(workspace / place) / name for place in PLACES]
    before = {path: content(path) for path in paths}
    assert freely(PUT, *paths).worked
    for path, old in before.items():
        assert content(path) != old
        if old is None:
            path.unlink()
            if path.parent.name == ".vscode":
                path.parent.rmdir()
        else:
            path.write_bytes(old)
        path.parent.is_dir() and os.chmod(path.parent, 0o755)
    ran = attack(box, "cold", workspace, PUT, *paths)
    assert {path: content(path) for path in paths} == before, ran.story


@pytest.mark.parametrize("how", HOW)
def test_its_head_and_top_folder_are_protected_too(box: Box, workspace: Path, how: str) -> None:
    inner = make_repository(workspace / "vendor/lib")
    head = inner / ".git/HEAD"
    before = head.read_bytes()
    program = python("open(args[0], 'w').close(); worked()")
    assert freely(program, head).worked
    head.write_bytes(before)
    attack(box, how, workspace, program, head)
    assert head.read_bytes() == before


def test_work_in_an_existing_repository_goes_on(box: Box, workspace: Path) -> None:
    make_repository(workspace)
    inner = make_repository(workspace / "vendor/lib")
    script = """
        cd vendor/lib && echo x > new && git add new &&
        git -c user.name=t -c user.email=t@example.org commit -qm second && git checkout -qb side
    """
    ran = box.shell(script, preset="workspace-write", workspace=str(workspace))
    assert ran.exited(0), ran.story
    assert ran.denials == []
    assert ran.raw["warnings"] == []
    assert git(inner, "log", "--format=%s") == "second\nfirst\n"


@pytest.mark.parametrize("how", HOW)
def test_a_new_repository_is_named(box: Box, workspace: Path, how: str) -> None:
    (workspace / "there").mkdir()
    program = ("sh", "-c", "git init -q there/made && git init -q --bare deep/er/bare.git")
    ran = attack(box, how, workspace, program)
    assert ran.exited(0), ran.story
    assert (workspace / "there/made/.git/HEAD").exists()
    said = " ".join(ran.raw["warnings"])
    assert f"{workspace}/there/made" in said
    assert f"{workspace}/deep/er/bare.git" in said


def test_what_is_not_protected_is_said_once(box: Box, workspace: Path) -> None:
    for number in range(33):
        make_repository(workspace / f"folder{number}")
    request = {"preset": "workspace-write", "workspace": str(workspace)}
    ran = box.run("/bin/true", **request)
    assert "more than 32 repositories" in " ".join(ran.raw["warnings"])
    assert box.run("/bin/true", **request).raw["warnings"] == []
    assert "more than 32" in " ".join(box.check(**request)["warnings"])


@pytest.mark.parametrize("place", ["", "cache/sdists"], ids=["at the top", "in a folder"])
def test_an_empty_git_stays_what_it_is(box: Box, workspace: Path, place: str) -> None:
    folder = workspace / place
    folder.mkdir(parents=True, exist_ok=True)
    pointer = folder / ".git"
    pointer.touch()
    request = {"preset": "workspace-write", "workspace": str(workspace)}
    ran = box.run("/bin/true", **request)
    assert ran.exited(0), ran.story
    for change in ("rm -f .git; mkdir .git", "echo gitdir: /x > .git", "mv .git x; git init -q"):
        ran = box.shell(f"cd {folder}; {change}; true", **request)
        assert pointer.is_file(), ran.story
        assert pointer.read_bytes() == b"", ran.story


@pytest.mark.parametrize("how", HOW)
def test_a_repository_far_down_a_large_tree_is_protected(
    box: Box, workspace: Path, how: str
) -> None:
    for number in range(300):
        (workspace / f"folder{number}/src/main/java").mkdir(parents=True)
    inner = make_repository(workspace / "folder299/src/main/java/org/example/app/vendored")
    hook = inner / ".git/hooks/pre-commit"
    program = python("open(args[0], 'w').close(); worked()")
    assert freely(program, hook).worked
    hook.unlink()
    ran = attack(box, how, workspace, program, hook)
    assert not hook.exists()
    assert ran.raw["warnings"] == []


def test_more_links_than_are_protected_are_said(box: Box, workspace: Path) -> None:
    repository = make_repository(workspace)
    commit = git(repository, "rev-parse", "HEAD").strip()
    params = {"preset": "workspace-write", "workspace": str(repository)}
    for count in (200, 300):
        links = "".join(f"160000 {commit}\tlink{number}\n" for number in range(count))
        command = ["git", "-C", str(repository), "update-index", "--index-info"]
        subprocess.run(command, input=links.encode(), check=True)
        ran = box.run("/bin/true", **params)
        said = " ".join(ran.raw["warnings"])
        assert ("more git repositories than are protected" in said) == (count > 256), said


PROGRAMS = {
    "filter.x.clean": "tools/run --flag",
    "filter.x.process": "python3 tools/run",
    "filter.x.smudge": "cd tools && ./run",
    "merge.y.driver": "FOO=1 sh -c 'cd \"$(git rev-parse --show-toplevel)/tools\" && make %A'",
    "diff.x.textconv": "./tools/run",
    "diff.external": "tools/run",
    "merge.x.driver": "tools/run %A %B",
    "core.sshCommand": "sh tools/run -x",
    "core.editor": "'tools/run' --wait",
    "sequence.editor": "tools/run",
    "core.pager": "tools/run | less",
    "pager.log": "tools/run",
    "credential.helper": "!f() { tools/run; }; f",
    "gpg.program": "tools/run",
    "core.askPass": "tools/run",
    "alias.x": "!tools/run",
    "core.fsmonitor": "tools/run",
    "core.hooksPath": "tools/_",
}


def test_programs_that_the_config_names_are_kept(box: Box, workspace: Path) -> None:
    repository = make_repository(workspace)
    programs = {}
    for number, (key, command) in enumerate(PROGRAMS.items()):
        folder = repository / f"tools{number}"
        (folder / "_").mkdir(parents=True)
        programs[key] = folder / "run"
        programs[key].write_text("#!/bin/sh\n")
        git(repository, "config", key, command.replace("tools", folder.name))
    assert freely(PUT, *programs.values()).worked
    for program in programs.values():
        assert content(program) != b"#!/bin/sh\n"
        program.write_text("#!/bin/sh\n")
        program.chmod(0o644)
    ran = attack(box, "cold", repository, PUT, *programs.values())
    for key, program in programs.items():
        assert content(program) == b"#!/bin/sh\n", f"{key}: {ran.story}"
    ran = box.shell("echo x > other && mkdir -p sub && echo x > sub/y", preset="workspace-write",
                    workspace=str(repository))  # fmt: skip
    assert ran.exited(0), ran.story


SUBMODULE = {
    "config": ".git/modules/sub/config",
    "a hook": ".git/modules/sub/hooks/post-checkout",
    "config.worktree": ".git/modules/sub/config.worktree",
    "another submodule": ".git/modules/new/config",
    "the pointer": "sub/.git",
    "HEAD": ".git/modules/sub/HEAD",
}


@pytest.fixture
def with_submodule(workspace: Path, tmp_path: Path) -> Path:
    """A submodule as `git submodule add` makes it: its git dir is in `.git/modules`."""
    source = make_repository(tmp_path / "source")
    made = make_repository(workspace)
    git(made, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(source), "sub")
    git(made, "commit", "-qm", "x")
    return made


@pytest.mark.parametrize(("how", "names"), each_and_all(SUBMODULE))
def test_a_submodule_keeps_what_runs_code(
    box: Box, with_submodule: Path, names: tuple[str, ...], how: str
) -> None:
    paths = [with_submodule / SUBMODULE[name] for name in names]
    before = {path: content(path) for path in paths}
    ran = attack(box, how, with_submodule, PUT, *paths)
    assert {path: content(path) for path in paths} == before, ran.story
    assert git(with_submodule, "status", "--porcelain") == ""
    assert freely(PUT, *paths).worked
    for path, old in before.items():
        assert content(path) != old


@pytest.mark.parametrize("how", HOW)
def test_work_in_a_submodule_goes_on(box: Box, with_submodule: Path, how: str) -> None:
    program = python("""
        import subprocess
        def git(*words):
            subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], check=True)
        open("sub/new", "w").close()
        git("-C", "sub", "add", "new")
        git("-C", "sub", "commit", "-qm", "in sub")
        git("add", "sub")
        git("commit", "-qm", "in top")
        worked()
    """)
    ran = attack(box, how, with_submodule, program)
    assert ran.exit_code == 42, ran.story
    assert ran.denials == [], ran.story
    assert git(with_submodule, "status", "--porcelain") == ""
    assert "in sub" in git(with_submodule / "sub", "log", "--oneline")


# Where the search for repositories does not come, but git status does: the index names them.
FAR = {
    "in node_modules": "node_modules/lib",
    "deep": "a/b/c/d/e/f/g/h/lib",
    "many": "zz/lib",
}
RUN_BY_STATUS = python("""
    import subprocess
    from pathlib import Path
    program = Path(args[0], "program")
    program.write_text("#!/bin/sh\\ntouch " + args[0] + "/ran\\n")
    program.chmod(0o755)
    place = Path(args[0], args[1])
    try:
        if not (place / ".git").exists():
            subprocess.run(["git", "init", "-q", str(place)], check=True)
            me = ["-c", "user.name=x", "-c", "user.email=x@y"]
            new = ["git", "-C", str(place), *me, "commit", "-q", "--allow-empty", "-m", "x"]
            subprocess.run(new, check=True)
        with open(place / ".git/config", "a") as file:
            file.write("[core]\\n\\tfsmonitor = " + str(program) + "\\n")
    except (OSError, subprocess.CalledProcessError):
        sys.exit(3)
    worked()
""")


def runs_at_status(repository: Path) -> bool:
    ran = repository / "ran"
    ran.unlink(missing_ok=True)
    git(repository, "status")
    return ran.exists()


@pytest.mark.parametrize("is_populated", [True, False], ids=["populated", "empty"])
@pytest.mark.parametrize("name", FAR)
def test_repositories_that_the_index_names_are_protected_wherever_they_are(
    box: Box, workspace: Path, name: str, is_populated: bool
) -> None:
    repository = make_repository(workspace)
    if name == "many":
        for number in range(300):
            (repository / f"folder{number}").mkdir()
    inner = make_repository(repository / FAR[name])
    git(repository, "add", FAR[name])
    git(repository, "commit", "-qm", "with a link")
    if not is_populated:
        shutil.rmtree(inner / ".git")
    before = content(inner / ".git/config")
    ran = attack(box, "cold", repository, RUN_BY_STATUS, repository, FAR[name])
    assert not runs_at_status(repository), ran.story
    assert content(inner / ".git/config") == before, ran.story
    assert ran.exit_code != 42 or ran.denials, ran.story
    assert freely(RUN_BY_STATUS, repository, FAR[name]).worked
    assert runs_at_status(repository)


@pytest.mark.parametrize("how", ["warm", "persistent"])
def test_the_link_counts_for_a_sandbox_that_was_up_before_it(
    box: Box, workspace: Path, how: str
) -> None:
    repository = make_repository(workspace)
    assert box.run("/bin/true", preset="workspace-write", workspace=str(repository)).exited(0)
    make_repository(repository / FAR["in node_modules"])
    git(repository, "add", FAR["in node_modules"])
    ran = attack(box, how, repository, RUN_BY_STATUS, repository, FAR["in node_modules"])
    assert not runs_at_status(repository), ran.story


@pytest.fixture
def around(tmp_path: Path) -> Path:
    """A repository whose settings and links lead into its folder `part`."""
    made = make_repository(tmp_path / "around")
    part = made / "part"
    (part / "githooks").mkdir(parents=True)
    (part / "clean").write_text("#!/bin/sh\ncat\n")
    (part / "clean").chmod(0o755)
    make_repository(part / FAR["in node_modules"])
    git(made, "add", ".")
    git(made, "commit", "-qm", "x")
    git(made, "config", "core.hooksPath", "part/githooks")
    git(made, "config", "filter.x.clean", "part/clean")
    return made


LEADS_INTO = {
    "a hook": "githooks/pre-commit",
    "a filter": "clean",
    "the config of a linked repository": f"{FAR['in node_modules']}/.git/config",
}


@pytest.mark.parametrize("how", HOW)
def test_a_workspace_that_is_a_folder_of_a_repository(box: Box, around: Path, how: str) -> None:
    """That repository is out of reach; what it runs, and lies in the workspace, stays too."""
    part = around / "part"
    places = [part / name for name in LEADS_INTO.values()]
    before = {path: content(path) for path in places}
    program = python("""
        changed = 0
        for path in args:
            try:
                with open(path, "a") as file:
                    file.write("\\n# changed\\n")
                changed += 1
            except OSError:
                pass
        worked(changed)
    """)
    ran = attack(box, how, part, program, *places)
    assert {path: content(path) for path in places} == before, ran.story
    assert freely(program, *places).words == str(len(places))
    assert all(content(path) != before[path] for path in places)


# Each makes a folder of the user a repository with a hook, for a git command that is run there.
OVERTAKEN = {
    "plain": "git init -q . && cp ../hook .git/hooks/post-checkout",
    "config": "git init -q . && git config core.hooksPath ../hooks",
    "bare": "git init -q --bare . && git config core.worktree . && cp ../hook hooks/x",
    "pointer": "git init -q ../1 && cp ../hook ../1/.git/hooks/x && echo gitdir: ../1/.git > .git",
    "link": "git init -q ../2 && cp ../hook ../2/.git/hooks/x && ln -s ../2/.git .git",
    "swapped": "git init -q ../3 && cp ../hook ../3/.git/hooks/x && cp * ../3 && "
    "cd .. && mv swapped old && mv 3 swapped",
}


@pytest.mark.parametrize("how", HOW)
def test_no_folder_of_the_user_becomes_a_repository_that_runs_programs(
    box: Box, workspace: Path, how: str
) -> None:
    repository = make_repository(workspace)
    for name in OVERTAKEN:
        (repository / name).mkdir()
        (repository / name / "file").write_text("x")
    (repository / "hook").write_text("#!/bin/sh\n")
    control = repository.parent / "control"
    shutil.copytree(repository, control)
    script = "\n".join(f"(cd {name} && {line}) || exit 1" for name, line in OVERTAKEN.items())
    ran = attack(box, how, repository, ("sh", "-c", script))
    assert ran.exited(0), ran.story
    reported = [d["target"] for d in ran.denials if d["kind"] == "protected_path"]
    # And the hooks in the folders of its own that it led git to.
    assert len([one for one in reported if "/.git/hooks/" not in one]) == len(OVERTAKEN), ran.story
    subprocess.run(["sh", "-c", script], cwd=control, check=True)
    for name in OVERTAKEN:
        words = "rev-parse", "--absolute-git-dir"
        assert git(repository / name, *words).strip() == str(repository / ".git")
        assert git(control / name, *words).strip() != str(control / ".git")


def test_a_harmless_repository_in_a_folder_of_the_user_stays(box: Box, workspace: Path) -> None:
    repository = make_repository(workspace)
    for name in ("src", "tree"):
        (repository / name).mkdir()
    script = "git init -q src && git -C src config user.name x && git worktree add -q tree"
    ran = attack(box, "cold", repository, ("sh", "-c", script))
    assert ran.exited(0), ran.story
    assert not is_reported(ran), ran.story
    assert len(ran.raw["warnings"]) == 2
    assert git(repository / "tree", "status", "--porcelain") == ""


def git_dir(folder: Path) -> str:
    return git(folder, "rev-parse", "--absolute-git-dir").strip()


@pytest.fixture
def persistent(box: Box, workspace: Path) -> Iterator[str]:
    """A sandbox for a repository with folders of the user."""
    repository = make_repository(workspace)
    for name in (*OVERTAKEN, "later", "own"):
        (repository / name).mkdir()
        (repository / name / "file").write_text("x")
    (repository / "hook").write_text("#!/bin/sh\n")
    params = {"preset": "workspace-write", "workspace": str(repository)}
    made = box.connection.call("sandbox/create", params)["sandbox"]
    yield made
    box.connection.call("sandbox/destroy", {"sandbox": made})


def test_what_a_command_left_running_makes_no_repository_that_runs_programs(
    box: Box, workspace: Path, persistent: str
) -> None:
    """`later` is a harmless repository when the command ends."""
    lines = {**OVERTAKEN, "later": "cp ../hook .git/hooks/x"}
    script = "\n".join(f"(cd {name} && {line})" for name, line in lines.items())
    control = workspace.parent / "control"
    shutil.copytree(workspace, control)
    subprocess.run(["sh", "-c", f"git init -q later\n{script}"], cwd=control, check=True)
    assert all(git_dir(control / name) != str(control / ".git") for name in lines)

    wait = "while [ ! -e go ]; do sleep 0.05; done"
    left = f"({wait}\n{script}\ntouch done; sleep 60) > /dev/null 2>&1 &"
    ran = box.shell(f"git init -q later; {left}", sandbox=persistent, cwd=str(workspace))
    assert ran.exited(0), ran.story
    assert git_dir(workspace / "later") == str(workspace / "later/.git")
    (workspace / "go").touch()
    wait_for((workspace / "done").exists)
    # A repository that was disarmed before the folder led to it may stay.
    for name in lines:
        wait_for(lambda name=name: is_harmless(workspace / name, workspace))


def is_harmless(folder: Path, workspace: Path) -> bool:
    found = Path(git_dir(folder))
    if found == workspace / ".git":
        return True
    hooks = [one for one in found.glob("hooks/*") if one.suffix != ".sample"]
    return not hooks and not git(folder, "config", "core.hooksPath", check=False)


def test_a_later_command_in_the_sandbox_arms_no_repository_of_an_earlier_one(
    box: Box, workspace: Path, persistent: str
) -> None:
    assert box.run("git", "init", "-q", "src", sandbox=persistent, cwd=f"{workspace}").exited(0)
    assert box.run("git", "init", "-q", "later", sandbox=persistent, cwd=f"{workspace}").exited(0)
    time.sleep(0.5)  # nothing of the sandbox runs
    arm = "cp hook later/.git/hooks/x; cp hook src/.git/hooks/x"
    ran = box.shell(arm, sandbox=persistent, cwd=str(workspace))
    wait_for(lambda: git_dir(workspace / "later") == str(workspace / ".git"))
    assert ran.exited(0), ran.story
    # In a folder of the command's own the repository stays, without what it would run.
    assert not (workspace / "src/.git/hooks/x").exists(), ran.story
    assert git_dir(workspace / "src") == str(workspace / "src/.git")


def test_a_repository_of_the_user_stays_while_a_sandbox_lives(
    box: Box, workspace: Path, persistent: str
) -> None:
    git(workspace / "own", "init", "-q")
    shutil.copy(workspace / "hook", workspace / "own/.git/hooks/x")
    for _ in range(2):
        ran = box.shell("sleep 0.6", sandbox=persistent, cwd=str(workspace))
        assert ran.exited(0), ran.story
        assert not is_reported(ran), ran.story
    assert git_dir(workspace / "own") == str(workspace / "own/.git")
