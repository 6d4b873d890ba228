"""Repositories in writable folders besides the workspace: named by the caller for their files."""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support.attacks import Box, freely, python
from support.git_attacks import git, is_reported, make_repository
from support.rpc import RpcError

pytestmark = [pytest.mark.isolation, pytest.mark.requires("git")]

# From the granted folder; the first three are files that git or an editor runs.
CHANGED = (
    ".git/hooks/pre-commit", ".git/config", ".vscode/tasks.json", "deep/down/.git/hooks/pre-commit",
)  # fmt: skip
WRITE = python("""
    changed = 0
    for path in args:
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "a") as file:
                file.write("\\n# changed\\n")
            changed += 1
        except OSError:
            pass
    worked(changed)
""")


def content(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


@pytest.fixture
def granted(outside: Path) -> Path:
    make_repository(outside / "other")
    make_repository(outside / "other/deep/down")
    return outside / "other"


def params(workspace: Path, *granted: Path) -> dict[str, Any]:
    allowed = [str(path) for path in granted]
    return {
        "preset": "workspace-write",
        "workspace": str(workspace),
        "manifest": {"fs_write_allow": allowed},
    }


@pytest.mark.parametrize("wide", [False, True], ids=["the repository", "the folder above"])
@pytest.mark.parametrize("how", ["cold", "persistent"])
def test_a_granted_repository_keeps_what_runs_code(
    box: Box, workspace: Path, granted: Path, wide: bool, how: str
) -> None:
    places = [granted / name for name in CHANGED]
    before = {path: content(path) for path in places}
    asked = params(workspace, granted.parent if wide else granted)
    argv = [*WRITE, *map(str, places)]
    if how == "persistent":
        sandbox = box.connection.call("sandbox/create", asked)["sandbox"]
        ran = box.run(*argv, sandbox=sandbox, cwd=str(workspace))
        with contextlib.suppress(RpcError):  # it may have been ended for what was tried
            box.connection.call("sandbox/destroy", {"sandbox": sandbox})
    else:
        ran = box.run(*argv, **asked)
    assert {path: content(path) for path in places} == before, ran.story
    assert freely(WRITE, *places).words == str(len(places))
    assert all(content(path) != before[path] for path in places)


def test_its_index_is_judged_too(box: Box, workspace: Path, granted: Path) -> None:
    before = (granted / ".git/index").read_bytes()
    script = f"printf DIRC > {granted}/.git/index; printf nothing > {granted}/.git/HEAD; sleep 0.1"
    ran = box.shell(script, **params(workspace, granted))
    assert (granted / ".git/index").read_bytes() == before, ran.story
    assert git(granted, "status", "--porcelain") == "?? deep/\n"


def test_work_in_a_granted_repository_goes_on(box: Box, workspace: Path, granted: Path) -> None:
    script = f"cd {granted} && echo x > made && git add made && git -c user.name=t -c user.email=t "
    ran = box.shell(f"{script} commit -qm made", **params(workspace, granted))
    assert ran.exited(0), ran.story
    assert git(granted, "log", "-1", "--format=%s") == "made\n"


# From the granted folder, which is no repository: each makes it one that runs a program.
BECOMES = {
    "a git dir": "git init -q --bare . && git config core.bare false && "
    "git config core.worktree . && git config core.fsmonitor {program}",
    "a .git with a program": "git init -q . && git config core.fsmonitor {program}",
    "a .git with a hook": "git init -q . && cp {program} .git/hooks/post-index-change",
    "a .git file": "git init -q made && git -C made config core.fsmonitor {program} && "
    "echo gitdir: made/.git > .git",
    "a link": "git init -q made && git -C made config core.fsmonitor {program} && "
    "ln -s made/.git .git",
    "deeper": "git init -q there && git -C there config core.fsmonitor {program}",
}


@pytest.fixture
def plain(outside: Path) -> Path:
    """A folder with files, and a program that shows that it was run."""
    folder = outside / "plain"
    (folder / "there").mkdir(parents=True)
    (folder / "there/file").write_text("x")
    program = folder / "program"
    program.write_text(f"#!/bin/sh\ntouch {outside}/ran\n")
    program.chmod(0o755)
    return folder


@pytest.mark.parametrize("how", ["cold", "persistent"])
@pytest.mark.parametrize("becomes", BECOMES)
def test_a_granted_folder_becomes_no_repository_that_runs_programs(
    box: Box, workspace: Path, plain: Path, becomes: str, how: str
) -> None:
    place = plain / "there" if becomes == "deeper" else plain
    script = f"cd {plain} && {BECOMES[becomes].format(program=plain / 'program')}"
    asked = params(workspace, plain)
    if how == "persistent":
        sandbox = box.connection.call("sandbox/create", asked)["sandbox"]
        ran = box.shell(script, sandbox=sandbox, cwd=str(workspace))
        with contextlib.suppress(RpcError):  # it may have been ended for what was tried
            box.connection.call("sandbox/destroy", {"sandbox": sandbox})
    else:
        ran = box.shell(script, **asked)
    assert is_reported(ran), ran.story
    git(place, "add", "-A", check=False)
    assert not (plain.parent / "ran").exists(), ran.story
    control = f"rm -rf made .git there/.git *.lock; {script}"
    subprocess.run(["sh", "-c", control], cwd=plain, check=True)
    git(place, "add", "-A")
    assert (plain.parent / "ran").exists()


def test_a_harmless_repository_in_a_granted_folder_stays_and_is_named(
    box: Box, workspace: Path, plain: Path
) -> None:
    script = f"cd {plain} && git init -q . && git init -q new/one && mkdir -p new/two/.hg"
    ran = box.shell(script, **params(workspace, plain))
    assert ran.exited(0), ran.story
    assert not is_reported(ran), ran.story
    said = " ".join(ran.raw["warnings"])
    assert all(f"in {plain}{name}:" in said for name in ("", "/new/one", "/new/two")), said
    assert git(plain, "status", "--porcelain", "--untracked=no") == ""


def test_settings_of_other_version_control_in_a_granted_folder(
    box: Box, workspace: Path, plain: Path
) -> None:
    (plain / "project/.hg").mkdir(parents=True)
    places = [plain / ".hg/hgrc", plain / "there/.hg/hgrc", plain / "project/.hg/hgrc"]
    ran = box.run(*WRITE, *map(str, places), **params(workspace, plain))
    assert not any(path.exists() for path in places), ran.story
    assert is_reported(ran), ran.story
    assert freely(WRITE, *places).words == str(len(places))
