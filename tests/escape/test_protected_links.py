"""Symlinks before, in and behind what runs later outside: none leads git or an editor elsewhere.

Each attack is first done without a sandbox, and git on the host runs the program. Then commands do
the same in a sandbox, one after the other.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.attacks import Box, freely, python
from support.git_attacks import attack, git, make_repository

pytestmark = [pytest.mark.isolation, pytest.mark.requires("git")]

RUN = """
    import subprocess, shutil
    top = args[0]
    os.chdir(top)
    def put(path, text, mode=0o755):
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        with open(path, "w") as file:
            file.write(text)
        os.chmod(path, mode)
    def program(path): put(path, "#!/bin/sh\\ntouch " + top + "/ran\\nexit 0\\n")
    def link(target, path):
        os.symlink(target, path + ".new")
        os.replace(path + ".new", path)
    def git(*words):
        env = {"PATH": "/usr/bin:/bin", "HOME": "/nowhere"}
        subprocess.run(["git", *words], check=True, env=env, stdout=subprocess.DEVNULL)
    def repository(path, harmful):
        git("init", "-q", "node_modules/t")
        if harmful:
            program("node_modules/monitor")
            git("-C", "node_modules/t", "config", "core.fsmonitor", top + "/node_modules/monitor")
        os.rename("node_modules/t/.git", path)
    def lead(folder, to):
        os.makedirs(folder, exist_ok=True)
        put(folder + "/.git", "gitdir: " + to + "\\n", 0o644)
    def enter(folder):
        git("update-index", "--add", "--cacheinfo", "160000," + "1" * 40 + "," + folder)
"""

# What the user has (in a shell), what each command does, and where the user runs git afterwards.
Case = tuple[str, tuple[str, ...], str]
EXCHANGED: Case = (
    "mkdir -p v1/hooks evil; ln -s v1 tools; echo '[user]' > v1/settings; cp hook v1/run; "
    "cp hook v1/hooks/pre-commit; git config ",
    ("program('evil/hooks/pre-commit'); program('evil/run'); link('evil', 'tools'); "
     "put('evil/settings', '[core]\\nfsmonitor = ' + top + '/evil/run\\n')",),
    "",
)  # fmt: skip
POINTED = "mkdir -p src node_modules/p; echo a > src/a"
CASES: dict[str, Case] = {
    "a hook that is a link": (
        "mkdir scripts; cp hook scripts/run; ln -s ../../scripts/run .git/hooks/pre-commit",
        ("program('scripts/run')",), "",
    ),
    "a hook that is a link, in a configured folder": (
        "mkdir scripts h; cp hook scripts/run; ln -s ../scripts h/d; ln -s d/run h/pre-commit; "
        "git config core.hooksPath h",
        ("program('scripts/run')",), "",
    ),
    "a hook that is a link, in a folder elsewhere": (
        'mkdir scripts "$0-h"; cp hook scripts/run; ln -s "$0/scripts/run" "$0-h/pre-commit"; '
        'git config core.hooksPath "$0-h"',
        ("program('scripts/run')",), "",
    ),
    "hooks behind a link and ..": (
        "mkdir -p a/b a/h; cp hook a/h/pre-commit; ln -s a/b l; git config core.hooksPath l/../h",
        ("program('a/h/pre-commit')",), "",
    ),
    "a link to the hooks": (EXCHANGED[0] + "core.hooksPath tools/hooks", EXCHANGED[1], ""),
    "a link to settings": (EXCHANGED[0] + "include.path ../tools/settings", EXCHANGED[1], ""),
    "a link to a program": (EXCHANGED[0] + "core.fsmonitor tools/run", EXCHANGED[1], ""),
    "a link to a remote": (
        "mkdir v1; git init -q --bare v1/b; ln -s v1 tools; git remote add origin tools/b",
        ("git('init', '-q', '--bare', 'evil/b'); program('evil/b/hooks/update'); "
         "link('evil', 'tools')",), "",
    ),
    "a link to a git dir of the user": (
        "mkdir s1 node_modules; git init -q --separate-git-dir s1/g sub; ln -s s1 store; "
        "echo 'gitdir: ../store/g' > sub/.git",
        ("os.mkdir('s2'); repository('s2/g', True); link('s2', 'store')",), "sub",
    ),
    "the last of many included files": (
        "mkdir inc; for i in $(seq 40); do git config --add include.path ../inc/$i; done",
        ("program('run'); put('inc/39', '[core]\\nfsmonitor = ' + top + '/run\\n')",), "",
    ),
    "a pointer to nothing": (
        POINTED,
        ("lead('src', '../node_modules/p/g')", "repository('node_modules/p/g', True)"), "src",
    ),
    "a pointer of the user to nothing": (
        POINTED + "; echo 'gitdir: ../node_modules/p/g' > src/.git",
        ("repository('node_modules/p/g', True)",), "src",
    ),
    "a pointer of the user to an empty folder": (
        POINTED + "; mkdir node_modules/p/g; echo 'gitdir: ../node_modules/p/g' > src/.git",
        ("repository('node_modules/p/x', True); os.rmdir('node_modules/p/g'); "
         "os.rename('node_modules/p/x', 'node_modules/p/g')",), "src",
    ),
    "a pointer to nothing, behind the index": (
        POINTED,
        ("lead('node_modules/s', '../p/g'); enter('node_modules/s')",
         "repository('node_modules/p/g', True)"), "",
    ),
    "a pointer through a link": (
        POINTED,
        ("repository('node_modules/A', False); link('node_modules/A', 'l'); lead('src', '../l')",
         "repository('node_modules/B', True); link('node_modules/B', 'l')"), "src",
    ),
    "a pointer through a link, behind the index": (
        POINTED,
        ("repository('node_modules/A', False); link('A', 'node_modules/l'); "
         "lead('node_modules/s', '../l'); enter('node_modules/s')",
         "repository('node_modules/B', True); link('B', 'node_modules/l')"), "",
    ),
    "a folder that becomes a link": (
        POINTED,
        ("os.rename('src', 'old'); git('init', '-q', 'node_modules/n'); "
         "link('node_modules/n', 'src')",
         "program('run'); git('-C', 'node_modules/n', 'config', 'core.fsmonitor', top + '/run')"),
        "src",
    ),
    "a folder that looks bare, above a repository": (
        "mkdir src; git init -q src/lib",
        ("os.mkdir('src/objects'); os.mkdir('src/refs'); put('src/HEAD', 'ref: refs/heads/x\\n')",
         "program('src/lib/.git/hooks/pre-commit')"), "src/lib",
    ),
}  # fmt: skip


@pytest.fixture
def repository(workspace: Path) -> Iterator[Path]:
    make_repository(workspace)
    hook = workspace / "hook"
    hook.write_text("#!/bin/sh\nexit 0\n")
    hook.chmod(0o755)
    yield workspace
    shutil.rmtree(f"{workspace}-h", ignore_errors=True)


def prepare(repository: Path, setup: str) -> None:
    done = os.spawnlp(os.P_WAIT, "sh", "sh", "-ec", f'cd "$0"; {setup}', str(repository))
    assert done == 0, setup


def use_git(folder: Path) -> None:
    """As the user does, whatever git says."""
    git(folder, "status", check=False)
    git(folder, "commit", "--quiet", "--allow-empty", "-m", "x", check=False)
    git(folder, "push", "--quiet", "origin", "HEAD", check=False)


@pytest.mark.parametrize("name", CASES)
def test_nothing_that_git_runs_is_exchanged(box: Box, repository: Path, name: str) -> None:
    setup, commands, place = CASES[name]
    programs = [python(RUN, command, "worked()") for command in commands]
    prepare(repository, setup)
    before = repository.with_name("before")
    shutil.copytree(repository, before, symlinks=True)
    for program in programs:
        assert freely(program, repository).worked
    use_git(repository / place)
    assert (repository / "ran").exists()
    for path in repository.iterdir():
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    shutil.copytree(before, repository, symlinks=True, dirs_exist_ok=True)
    for program in programs:
        attack(box, "cold", repository, program, repository)
    use_git(repository / place)
    assert not (repository / "ran").exists()


@pytest.mark.parametrize("folder", [".vscode", ".claude", ".devcontainer"])
def test_what_links_in_a_protected_folder_lead_to_is_read_only(
    box: Box, repository: Path, folder: str
) -> None:
    prepare(
        repository,
        f"mkdir -p conf/more {folder}/deep; echo 1 > conf/a; echo 1 > conf/more/b; "
        f"ln -s ../conf/a {folder}/a; ln -s ../../conf/more {folder}/deep/more",
    )
    write = python("""
        for path in args:
            try:
                open(path, "w").write("2")
            except OSError as error:
                print(error)
        worked()
    """)
    paths = [repository / name for name in ("conf/a", "conf/more/b", "conf/c")]
    ran = attack(box, "cold", repository, write, *paths)
    assert [path.read_text() for path in paths] == ["1\n", "1\n", "2"], ran.story


def test_a_bare_repository_with_linked_folders_keeps_its_hooks(box: Box, repository: Path) -> None:
    prepare(
        repository,
        "git init -q --bare st/b.git; mkdir big; mv st/b.git/objects big; "
        "ln -s ../../big/objects st/b.git/objects; git remote add origin st/b.git",
    )
    hook = repository / "st/b.git/hooks/update"
    program = python("""
        open(args[0], "w").write("#!/bin/sh\\ntouch " + args[1] + "\\n")
        os.chmod(args[0], 0o755)
        worked()
    """)
    assert freely(program, hook, repository / "ran").worked
    git(repository, "push", "--quiet", "origin", "HEAD:a")
    assert (repository / "ran").exists()
    (repository / "ran").unlink()
    hook.unlink()
    attack(box, "cold", repository, program, hook, repository / "ran")
    git(repository, "push", "--quiet", "origin", "HEAD:b")
    assert not (repository / "ran").exists()


def test_a_pointer_to_nothing_of_the_user_and_common_links_disturb_nobody(
    box: Box, repository: Path
) -> None:
    prepare(
        repository,
        "mkdir src lib other tools scripts; echo 'gitdir: ../gone/g' > src/.git; "
        "echo 'gitdir: ../other' > lib/.git; ln -s tools bin; cp hook scripts/run; "
        "ln -s ../../scripts/run .git/hooks/pre-commit",
    )
    request = {"preset": "workspace-write", "workspace": str(repository)}
    script = "mkdir gone; touch other/x src/y lib/z tools/t scripts/new; git add scripts/new"
    for _ in range(2):
        ran = box.shell(f"{script}; rm -r gone", **request)
        assert ran.exited(0), ran.story
        assert ran.denials == [], ran.story
    assert (repository / "src/.git").read_text() == "gitdir: ../gone/g\n"
    ran = box.shell("echo x > scripts/run", **request)
    assert (repository / "scripts/run").read_text() == (repository / "hook").read_text()
    assert "is protected" in str(ran.denials), ran.story
