"""Refs that name a file of the git dir: git on the host would make that file."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest
from support.attacks import Box
from support.git_attacks import HOW, attack, git, is_reported, make_repository

pytestmark = [pytest.mark.isolation, pytest.mark.requires("git")]

# A branch that exists, one that does not, one that is written where it is, and the ref of notes
# whose merge is under way. What the user runs then makes git write `commondir`.
REFS = {
    "an existing branch": ("printf 'ref: commondir' > .git/refs/heads/dev", "dev"),
    "a new branch": ("printf 'ref: commondir' > .git/refs/heads/made", "made"),
    "in a folder": (
        "mkdir .git/refs/heads/a; printf 'ref: \\t./../commondir\\n' > .git/refs/heads/a/b; "
        "printf 'ref:  commondir \\n' > .git/refs/heads/a/c",
        "a/c",
    ),
    "through a mapping": (
        """/usr/bin/python3 -c '
import mmap
file = open(".git/refs/heads/dev", "r+b")
mapped = mmap.mmap(file.fileno(), 0)
mapped[:] = b"ref: commondir".ljust(len(mapped), b" ")
'""",
        "dev",
    ),
}


def make(folder: Path) -> Path:
    git(make_repository(folder), "branch", "dev")
    make_repository(folder.parent / f"{folder.name}-other")
    return folder


def fetch(folder: Path, branch: str) -> bool:
    """What a user does: whether git wrote the file."""
    other = folder.parent / f"{folder.name}-other"
    git(folder, "fetch", "-q", str(other), f"+main:{branch}", check=False)
    return (folder / ".git/commondir").exists()


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("name", REFS)
def test_no_ref_is_left_that_names_another_file(
    box: Box, workspace: Path, name: str, how: str
) -> None:
    repository, control = make(workspace), make(workspace.parent / "control")
    script, branch = REFS[name]
    ran = attack(box, how, repository, ("sh", "-ec", script))
    assert ran.exited(0), ran.story
    assert is_reported(ran), ran.story
    assert not fetch(repository, branch), ran.story
    assert git(repository, "status", "--porcelain") == ""
    subprocess.run(["sh", "-ec", script], cwd=control, check=True)
    assert fetch(control, branch)


def test_names_of_other_refs_stay(box: Box, workspace: Path) -> None:
    """As in refs/remotes/origin/HEAD; and what the user had stays whatever it is."""
    repository = make(workspace)
    (repository / ".git/refs/heads/odd").write_text("ref: somewhere\n")
    time.sleep(0.1)  # longer than a ref must be there to count as the user's
    script = "git symbolic-ref refs/remotes/origin/HEAD refs/remotes/origin/main; git commit -qam x"
    ran = attack(box, "cold", repository, ("sh", "-c", script))
    assert not is_reported(ran), ran.story
    target = "symbolic-ref", "refs/remotes/origin/HEAD"
    assert git(repository, *target) == "refs/remotes/origin/main\n"
    assert (repository / ".git/refs/heads/odd").exists()
