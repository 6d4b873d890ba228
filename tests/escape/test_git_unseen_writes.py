"""Writes that no event tells of: through a mapping, a second name, a descriptor that stays open.

A mapping that was written once can be written again without a change of the file's times.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from support.attacks import Box, freely, python
from support.git_attacks import HOW, attack, git, is_reported, make_repository

pytestmark = [pytest.mark.isolation, pytest.mark.requires("git")]

# Two indexes of the same size: in the second one `sub` is a link to a repository that runs a
# program. `judged` makes the guard look at what is there, and waits until it has.
PREPARE = """
    import hashlib, mmap, subprocess, time
    here = args[0]
    env = {"PATH": "/usr/bin:/bin", "HOME": "/nowhere", "GIT_AUTHOR_NAME": "x",
           "GIT_AUTHOR_EMAIL": "x", "GIT_COMMITTER_NAME": "x", "GIT_COMMITTER_EMAIL": "x"}
    def git(*words, **more):
        subprocess.run(["git", "-C", here, *words], check=True, stdout=subprocess.DEVNULL,
                       env={**env, **more})
    def without_extensions(data):
        at = 12
        for _ in range(struct.unpack(">I", data[8:12])[0]):
            length = struct.unpack(">H", data[at + 60:at + 62])[0] & 0xfff
            at += (62 + length + 8) & ~7
        return data[:at] + hashlib.sha1(data[:at]).digest()
    def index_with(mode):
        made = here + "/made-index"
        git("read-tree", "HEAD", GIT_INDEX_FILE=made)
        git("update-index", "--add", "--cacheinfo", mode + "," + "1" * 40 + ",sub",
            GIT_INDEX_FILE=made)
        data = open(made, "rb").read()
        os.unlink(made)
        return without_extensions(data)
    def evil():
        git("init", "-q", "sub")
        git("-C", "sub", "commit", "-q", "--allow-empty", "-m", "x")
        open(here + "/monitor", "w").write("#!/bin/sh\\ntouch " + here + "/ran\\n")
        os.chmod(here + "/monitor", 0o755)
        git("-C", "sub", "config", "core.fsmonitor", here + "/monitor")
        git("-C", "sub", "update-index", "--fsmonitor")
    def judged():
        time.sleep(0.3)
        os.utime(here + "/.git/HEAD")
        time.sleep(0.6)
    index = here + "/.git/index"
    harmless, harmful = index_with("100644"), index_with("160000")
    assert len(harmless) == len(harmful)
    evil()
    with open(here + "/.git/index.lock", "wb") as file:
        file.write(harmless)
    os.rename(here + "/.git/index.lock", index)
"""
WRITES = {
    "a mapping": """
        file = open(index, "r+b")
        mapped = mmap.mmap(file.fileno(), 0)
        mapped[:4] = b"DIRC"
        judged()
        mapped[:] = harmful
    """,
    "a second name": """
        os.link(index, here + "/.git/objects/second")
        judged()
        open(here + "/.git/objects/second", "r+b").write(harmful)
    """,
    "a descriptor that stays open": """
        file = open(index, "r+b", buffering=0)
        judged()
        file.write(harmful)
    """,
}


@pytest.fixture
def repository(workspace: Path) -> Path:
    return make_repository(workspace)


def runs_code(folder: Path) -> bool:
    (folder / "ran").unlink(missing_ok=True)  # it may have run inside
    git(folder, "status", check=False)
    return (folder / "ran").exists()


@pytest.mark.parametrize("name", WRITES)
def test_control(repository: Path, name: str) -> None:
    assert freely(python(PREPARE, WRITES[name], "worked()"), repository).worked
    assert runs_code(repository)


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("name", WRITES)
def test_an_index_is_judged_by_its_content_when_the_command_ends(
    box: Box, repository: Path, name: str, how: str
) -> None:
    ran = attack(box, how, repository, python(PREPARE, WRITES[name], "worked()"), repository)
    assert not runs_code(repository), ran.story
    assert is_reported(ran), ran.story


# The command ends; a child goes on when args[1] appears.
LEFT = """
    import time
    if os.fork():
        worked()
    os.setsid()
    for fd in (0, 1, 2):
        os.dup2(os.open(os.devnull, os.O_RDWR), fd)
    def wait():
        while not os.path.exists(args[1]):
            time.sleep(0.05)
"""


def leave_running(box: Box, repository: Path, program: Sequence[str], go: Path) -> str:
    params = {"preset": "workspace-write", "workspace": str(repository)}
    sandbox: str = box.connection.call("sandbox/create", params)["sandbox"]
    ran = box.run(*program, str(repository), str(go), sandbox=sandbox, cwd=str(repository))
    assert ran.exited(42), ran.story
    time.sleep(1)  # by then the watch on existing files has begun
    go.touch()
    return sandbox


def is_ended(box: Box, sandbox: str) -> bool:
    listed = box.connection.call("sandbox/list")["sandboxes"]
    return sandbox not in {one["sandbox"] for one in listed}


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture
def go(repository: Path) -> Path:
    """Seen inside; to make it is no event for the guard."""
    (repository / "folder").mkdir()
    return repository / "folder" / "go"


@pytest.mark.parametrize("name", WRITES)
def test_what_is_left_running_does_not_keep_an_index(
    box: Box, repository: Path, go: Path, name: str
) -> None:
    """The repository that the index leads to was disarmed when the command had ended. Armed anew,
    it is disarmed by the clock, or the index ends the sandbox."""
    arm = 'git("-C", "sub", "config", "core.fsmonitor", here + "/monitor")'
    done = go.with_name("done")
    program = python(
        PREPARE, LEFT, "wait()", arm, WRITES[name], f"open({str(done)!r}, 'w')", "time.sleep(60)"
    )
    sandbox = leave_running(box, repository, program, go)
    wait_until(lambda: done.exists() or is_ended(box, sandbox))
    wait_until(lambda: not runs_code(repository))


CONFIG = {
    "a mapping": """
        file = open(config, "r+b")
        mapped = mmap.mmap(file.fileno(), 0)
        wait()
        mapped[:] = harmful
    """,
    "a second name": """
        wait()
        os.link(config, here + "/second")
        file = open(here + "/second", "r+b", buffering=0)
        file.write(harmful)
    """,
}
OTHER = """
    import mmap
    here, config = args[0], args[0] + "/.git/config"
    old = open(config, "rb").read()
    harmful = b"[core]\\n\\tfsmonitor = /bin/false\\n".ljust(len(old), b"#")
"""
SETTING = b"fsmonitor"


@pytest.mark.parametrize("name", CONFIG)
def test_what_is_left_running_does_not_keep_a_setting(
    box: Box, repository: Path, go: Path, name: str
) -> None:
    """Where nothing can be mounted over it, it can be written. Elsewhere it is read-only."""
    config = repository / ".git/config"
    config.write_bytes(config.read_bytes() + b"#" * 200)
    before = config.read_bytes()
    go.touch()
    assert freely(python(OTHER, "def wait(): pass", CONFIG[name], "worked()"), repository).worked
    assert SETTING in config.read_bytes()
    (repository / "second").unlink(missing_ok=True)
    config.write_bytes(before)
    go.unlink()
    program = python(OTHER, LEFT, CONFIG[name], "time.sleep(60)")
    sandbox = leave_running(box, repository, program, go)
    if box.backend == "landlock":
        wait_until(lambda: is_ended(box, sandbox))
        wait_until(lambda: SETTING not in config.read_bytes())
    else:
        box.connection.call("sandbox/destroy", {"sandbox": sandbox})
    assert config.read_bytes() == before
