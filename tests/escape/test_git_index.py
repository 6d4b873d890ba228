"""What git reads at every status, or at `--continue`: the index and unfinished operations."""

from __future__ import annotations

import contextlib
import shutil
import time
from pathlib import Path

import pytest
from support.attacks import Box, freely, python
from support.git_attacks import HOW, attack, git, is_reported, make_repository
from support.rpc import RpcError

pytestmark = [pytest.mark.isolation, pytest.mark.requires("git")]

# A repository with a program that git status runs, and a link to it in the index.
LINK = """
    import subprocess
    def git(*words):
        subprocess.run(["git", "-C", args[0], *words], check=True, stdout=subprocess.DEVNULL,
                       env={"PATH": "/usr/bin:/bin", "HOME": "/nowhere", "GIT_AUTHOR_NAME": "x",
                            "GIT_AUTHOR_EMAIL": "x", "GIT_COMMITTER_NAME": "x",
                            "GIT_COMMITTER_EMAIL": "x"})
    def evil(name):
        git("init", "-q", name)
        git("-C", name, "commit", "-q", "--allow-empty", "-m", "x")
        monitor = args[0] + "/monitor"
        open(monitor, "w").write("#!/bin/sh\\ntouch " + args[0] + "/ran\\n")
        os.chmod(monitor, 0o755)
        git("-C", name, "config", "core.fsmonitor", monitor)
        git("-C", name, "update-index", "--fsmonitor")
    def enter(name):
        git("update-index", "--add", "--cacheinfo", "160000," + "1" * 40 + "," + name)
    def point(where, more=""):
        # The link comes into the index last: nothing is to be seen before.
        evil("sub")
        os.rename(args[0] + "/sub/.git", args[0] + "/sub/" + os.path.normpath(where))
        open(args[0] + "/sub/.git", "w").write("gitdir: " + where + more)
        enter("sub")
"""
INDEX = {
    "a link to a repository": """
        evil("sub")
        git("add", "sub")
    """,
    "a link through a symlink": """
        evil("hidden")
        git("init", "-q", "name")
        git("-C", "name", "commit", "-q", "--allow-empty", "-m", "x")
        git("add", "name")
        import shutil
        shutil.rmtree(args[0] + "/name")
        os.symlink("hidden", args[0] + "/name")
        os.unlink(args[0] + "/name")
        os.rename(args[0] + "/hidden", args[0] + "/name")
    """,
    "a link to a repository that is harmless at first": """
        import time
        git("init", "-q", "sub")
        git("-C", "sub", "commit", "-q", "--allow-empty", "-m", "x")
        git("add", "sub")
        time.sleep(0.3)
        os.utime(args[0] + "/.git/HEAD")
        time.sleep(0.3)  # the index, too old to change unnoticed, has been judged
        evil("sub")
    """,
    "written in place through a second name": """
        evil("sub")
        old = open(args[0] + "/.git/index", "rb").read()
        git("add", "sub")
        new = open(args[0] + "/.git/index", "rb").read()
        os.link(args[0] + "/.git/index", args[0] + "/.git/objects/second")
        open(args[0] + "/.git/objects/second", "wb").write(new)
    """,
    "a pointer with a blank at its end": """
        os.makedirs(args[0] + "/sub/hidden")
        point("hidden ")
    """,
    "a pointer with many line ends": """
        point("hidden", "\\n" * 5000)
    """,
    "a long pointer": """
        point("./" * 2000 + "hidden")
    """,
    "a pointer with a zero in it": """
        point("hidden", "\\0/x")
    """,
    "a repository in a repository": """
        git("init", "-q", "sub")
        git("-C", "sub", "commit", "-q", "--allow-empty", "-m", "x")
        evil("sub/inner")
        git("-C", "sub", "add", "inner")
        git("-C", "sub", "commit", "-q", "-m", "x")
        enter("sub")
    """,
    "a shared index that is written later": """
        import time
        evil("sub")
        here = args[0] + "/.git/"
        import shutil
        shutil.copytree(here, args[0] + "/copy/.git")
        shutil.copy(args[0] + "/file", args[0] + "/copy")
        git("-C", "copy", "update-index", "--add", "--cacheinfo", "160000," + "1" * 40 + ",sub")
        whole = open(args[0] + "/copy/.git/index", "rb").read()
        git("update-index", "--split-index")
        shared, = [n for n in os.listdir(here) if n.startswith("sharedindex.")]
        name = bytes.fromhex(shared.partition(".")[2])
        time.sleep(0.3)
        os.utime(here + "HEAD")
        time.sleep(0.3)
        os.chmod(here + shared, 0o644)
        open(here + shared, "r+b").write(whole[:-20] + name)
    """,
}


@pytest.fixture
def repository(workspace: Path) -> Path:
    return make_repository(workspace)


def runs_code(folder: Path) -> bool:
    git(folder, "status", check=False)
    ran = folder / "ran"
    found = ran.exists()
    ran.unlink(missing_ok=True)
    return found


@pytest.mark.parametrize("name", INDEX)
def test_control(repository: Path, name: str) -> None:
    assert freely(python(LINK, INDEX[name], "worked()"), repository).worked
    (repository / "ran").unlink(missing_ok=True)
    assert runs_code(repository)


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("name", INDEX)
def test_the_index_leads_into_no_repository_that_runs_programs(
    box: Box, repository: Path, name: str, how: str
) -> None:
    before = (repository / ".git/index").read_bytes()
    ran = attack(box, how, repository, python(LINK, INDEX[name], "worked()"), repository)
    (repository / "ran").unlink(missing_ok=True)  # it ran inside
    assert not runs_code(repository), ran.story
    assert is_reported(ran), ran.story
    assert git(repository, "ls-files") == "file\n"
    assert before[:4] == (repository / ".git/index").read_bytes()[:4]


BROKEN = {
    "no index": "open(args[0] + '/.git/index', 'wb').write(b'DIRC')",
    "a link": "os.rename(args[0] + '/.git/index', args[0] + '/.git/objects/i'); "
    "os.symlink('objects/i', args[0] + '/.git/index')",
    "a pipe": "os.unlink(args[0] + '/.git/index'); os.mkfifo(args[0] + '/.git/index')",
}


@pytest.mark.parametrize("name", BROKEN)
def test_an_index_that_cannot_be_judged_is_put_back(box: Box, repository: Path, name: str) -> None:
    before = (repository / ".git/index").read_bytes()
    ran = attack(box, "cold", repository, python(BROKEN[name], "worked()"), repository)
    assert is_reported(ran), ran.story
    assert not (repository / ".git/index").is_symlink()
    assert (repository / ".git/index").read_bytes() == before


# Each leaves something behind that `git rebase --continue` or its kin would run.
STATE = {
    "strategy": """
        os.mkdir(state)
        for name, text in {"head-name": "refs/heads/main\\n", "strategy": "x/../../evil\\n",
                           "git-rebase-todo": "", "end": "1", "msgnum": "1"}.items():
            open(state + "/" + name, "w").write(text)
    """,
    "exec": """
        os.mkdir(state)
        open(state + "/git-rebase-todo", "w").write("exec touch ran\\n")
    """,
    "sequencer": """
        state = args[0] + "/.git/sequencer"
        os.mkdir(state)
        open(state + "/todo", "w").write("pick 1234567\\n")
        open(state + "/opts", "w").write("[options]\\n\\tstrategy = x/../../evil\\n")
    """,
    "link": """
        os.mkdir(args[0] + "/mine")
        open(args[0] + "/mine/git-rebase-todo", "w").write("exec touch ran\\n")
        os.symlink("../mine", state)
    """,
}


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("name", STATE)
def test_an_unfinished_operation_that_runs_programs_does_not_stay(
    box: Box, repository: Path, name: str, how: str
) -> None:
    program = python('state = args[0] + "/.git/rebase-merge"', STATE[name], "worked()")
    assert freely(program, repository).worked
    left = [repository / ".git" / n for n in ("rebase-merge", "sequencer")]
    assert any(path.exists() for path in left)
    for path in left:
        if path.is_symlink():
            path.unlink()
        shutil.rmtree(path, ignore_errors=True)
    shutil.rmtree(repository / "mine", ignore_errors=True)
    ran = attack(box, how, repository, program, repository)
    assert not any(path.exists() or path.is_symlink() for path in left), ran.story
    assert is_reported(ran), ran.story


@pytest.mark.parametrize("how", HOW)
def test_the_users_own_rebase_is_put_back(box: Box, repository: Path, how: str) -> None:
    """A rebase that was under way before the run is compared with what it was."""
    state = repository / ".git/rebase-merge"
    state.mkdir()
    (state / "git-rebase-todo").write_text("exec make test\npick abc\n")
    (state / "head-name").write_text("refs/heads/main\n")
    program = python("""
        open(args[0], "a").write("exec touch ran\\n")
        open(os.path.dirname(args[0]) + "/strategy", "w").write("x/../../evil\\n")
        worked()
    """)
    ran = attack(box, how, repository, program, state / "git-rebase-todo")
    assert is_reported(ran), ran.story
    assert (state / "git-rebase-todo").read_text() == "exec make test\npick abc\n"
    assert not (state / "strategy").exists()


NAMES = ["info/attributes", "remotes/origin", "branches/origin", "description.new", "unknown"]


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_is_no_work_of_gits_is_moved_aside_and_the_command_goes_on(
    box: Box, repository: Path, name: str, how: str
) -> None:
    program = python("""
        os.makedirs(os.path.dirname(args[0]), exist_ok=True)
        open(args[0], "w").write("x")
        time.sleep(0.5)
        worked()
    """)
    path = repository / ".git" / name
    shutil.rmtree(repository / ".git/branches", ignore_errors=True)
    ran = attack(box, how, repository, program, path)
    # Its folder may be gone before the file is made: that is an error like any other.
    assert ran.exited(42) or ran.exited(43), ran.story
    assert not path.exists()
    assert is_reported(ran), ran.story


def test_what_comes_back_again_and_again_ends_the_command(box: Box, repository: Path) -> None:
    """It is said why, and what a killed command printed is no evidence of another limit."""
    program = python("""
        print("sh: 0: Cannot fork", file=sys.stderr, flush=True)
        for _ in range(2000):
            try:
                open(args[0], "x").close()
            except FileExistsError:
                pass
            time.sleep(0.01)
        worked()
    """)
    ran = attack(box, "cold", repository, program, repository / ".envrc")
    assert ran.exit_code != 42, ran.story
    assert is_reported(ran), ran.story
    assert not (repository / ".envrc").exists()
    said = f"the command was ended, because {repository}/.envrc was made, changed or removed"
    assert said in ran.raw["warnings"], ran.story
    assert [one["kind"] for one in ran.raw["denials"]] == ["protected_path"], ran.story


@pytest.mark.parametrize("how", HOW)
def test_a_repository_is_not_made_where_the_index_already_has_a_link(
    box: Box, repository: Path, how: str
) -> None:
    """The index is left as it is: the link was there, and its repository was not."""
    commit = git(repository, "rev-parse", "HEAD").strip()
    git(repository, "update-index", "--add", "--cacheinfo", f"160000,{commit},sub")
    (repository / "sub").mkdir()
    program = python(LINK, 'evil("sub"); worked()')
    assert freely(program, repository).worked
    (repository / "ran").unlink(missing_ok=True)
    assert runs_code(repository)
    shutil.rmtree(repository / "sub")
    (repository / "sub").mkdir()
    ran = attack(box, how, repository, program, repository)
    (repository / "ran").unlink(missing_ok=True)
    assert not runs_code(repository), ran.story
    assert is_reported(ran), ran.story


def test_a_background_process_does_not_keep_a_changed_hook(box: Box, repository: Path) -> None:
    """In a persistent sandbox, after the command that started it has ended."""
    hook = repository / ".git/hooks/pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\nexit 0\n")
    before = hook.read_bytes()
    params = {"preset": "workspace-write", "workspace": str(repository)}
    sandbox = box.connection.call("sandbox/create", params)["sandbox"]
    script = (
        f"(sleep 1; touch {repository}/begun; while :; do echo evil > {hook};"
        f" echo evil > {hook}.new; mv {hook}.new {hook}; sleep 0.05; done) >/dev/null 2>&1 &"
    )
    assert box.run("sh", "-c", script, sandbox=sandbox, cwd=str(repository)).exited(0)

    def is_kept() -> bool:
        kept = hook.exists() and hook.read_bytes() == before
        return kept and not hook.with_name("pre-commit.new").exists()

    for _ in range(200):
        if (repository / "begun").exists() and is_kept():
            break
        time.sleep(0.1)
    assert (repository / "begun").exists()
    for _ in range(20):  # for good: mounted read-only, or ended
        time.sleep(0.05)
        assert is_kept()
    with contextlib.suppress(RpcError):
        box.connection.call("sandbox/destroy", {"sandbox": sandbox})
    assert is_kept()


def test_a_command_that_goes_on_does_not_keep_a_changed_hook(box: Box, repository: Path) -> None:
    """It waits for the hook to be what it was, and would wait for ever."""
    hook = repository / ".git/hooks/pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\nexit 0\n")
    before = hook.read_bytes()
    script = f"echo evil > {hook}; while grep -q evil {hook}; do sleep 0.05; done; sleep 1; exit 7"
    params = {"preset": "workspace-write", "workspace": str(repository)}
    ran = box.run("sh", "-c", script, cwd=str(repository), **params)
    assert ran.raw["outcome"] != "timeout", ran.story
    assert ran.exited(7) or is_reported(ran), ran.story
    assert hook.read_bytes() == before


def test_a_background_process_does_not_leave_a_rebase_that_runs_programs(
    box: Box, repository: Path
) -> None:
    state = repository / ".git/rebase-merge"
    params = {"preset": "workspace-write", "workspace": str(repository)}
    sandbox = box.connection.call("sandbox/create", params)["sandbox"]
    script = (
        f"(sleep 1; mkdir {state}; echo 'exec evil' > {state}/git-rebase-todo;"
        f" touch {repository}/done; sleep 30) >/dev/null 2>&1 &"
    )
    assert box.run("sh", "-c", script, sandbox=sandbox, cwd=str(repository)).exited(0)
    for _ in range(200):
        if (repository / "done").exists() and not state.exists():
            break
        time.sleep(0.1)
    assert (repository / "done").exists()
    assert not state.exists()
    box.connection.call("sandbox/destroy", {"sandbox": sandbox})


def test_no_command_makes_its_work_count_as_the_users_for_another(
    box: Box, repository: Path
) -> None:
    """The second starts while what the first left is there, and makes it again after it is gone.

    The control is the first command: without what was there before it, the same state goes.
    """
    program = python("""
        def plant():
            os.makedirs(args[0] + "/.git/rebase-merge", exist_ok=True)
            open(args[0] + "/.git/rebase-merge/git-rebase-todo", "w").write("exec touch ran\\n")
            os.makedirs(args[0] + "/.git/objects/info", exist_ok=True)
            open(args[0] + "/.git/objects/info/alternates", "w").write(args[0] + "/evil\\n")
        if args[1] == "first":
            plant()
        print("up", flush=True)
        sys.stdin.read()
        plant()
        worked()
    """)
    left = [repository / ".git/rebase-merge", repository / ".git/objects/info/alternates"]
    with box.daemon.connect() as connection:
        requests = {}
        for name in ("first", "second"):
            params = {"argv": [*program, str(repository), name], "preset": "workspace-write",
                      "workspace": str(repository), "stream": True, "stdin_open": True,
                      "execution_id": name}  # fmt: skip
            requests[name] = connection.start("execute", params)
            connection.wait_until(lambda name=name: "up" in connection.output(name))  # type: ignore[misc]
        assert left[0].exists()
        for name, request in requests.items():
            connection.call("execution/close_stdin", {"execution_id": name})
            result = connection.result(request)
            assert not any(path.exists() for path in left), result
            assert any(denial["kind"] == "protected_path" for denial in result["denials"]), result
