"""Repositories in writable folders besides the workspace: named by the caller for their files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.attacks import Box, freely, python
from support.git_attacks import git, make_repository

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
        if sandbox in str(box.connection.call("sandbox/list")):
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
