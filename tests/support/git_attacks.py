"""Repositories for attacks that wait for the user's next git command, and that command."""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from support.attacks import Box
from support.runs import Ran

HOW = ("cold", "warm", "persistent")
Attack = Callable[..., Ran]


def each_and_all(variants: Iterable[str]) -> list[Any]:
    """Parameters `how` and `names`: each variant alone in a sandbox that is made for it, and all of
    them by one command in the other modes. What a variant differs in does not depend on the mode;
    alone it shows that no other one gave it away."""
    names = tuple(variants)
    alone = [pytest.param("cold", (name,), id=f"cold-{name}") for name in names]
    return alone + [pytest.param(how, names, id=f"{how}-all") for how in HOW if how != "cold"]


def git(folder: Path, *words: str, check: bool = True) -> str:
    """Git as the user runs it on the host, without settings."""
    env = {
        "PATH": os.environ["PATH"], "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull, "GIT_TERMINAL_PROMPT": "0", "GIT_EDITOR": "true",
        **{f"GIT_{who}_{what}": f"t{at}" for who in ("AUTHOR", "COMMITTER")
           for what, at in (("NAME", ""), ("EMAIL", "@example.org"))},
    }  # fmt: skip
    done = subprocess.run(
        ["git", "-c", "init.defaultBranch=main", "-c", "safe.directory=*", "-C", str(folder),
         *words],
        env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert not check or done.returncode == 0, done.stderr
    return done.stdout


@cache
def _first_repository() -> Path:
    """Made once: `git init` and the first commit are four processes."""
    folder = Path(tempfile.mkdtemp(prefix="sandboxd-repository-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    git(folder, "init", "--quiet")
    (folder / "file").write_text("text\n")
    git(folder, "add", "file")
    git(folder, "commit", "--quiet", "-m", "first")
    for sample in folder.glob(".git/hooks/*.sample"):
        sample.unlink()
    return folder


def make_repository(folder: Path) -> Path:
    """A repository with one commit: a copy, and its index knows the copied file."""
    first = _first_repository()
    for place, _, names in os.walk(first):
        made = folder / os.path.relpath(place, first)
        made.mkdir(parents=True, exist_ok=True)
        for name in names:
            shutil.copy(os.path.join(place, name), made / name)
    if os.access(folder / "file", os.X_OK):  # a file system without mode bits, as `git init` finds
        git(folder, "config", "core.fileMode", "false")
    git(folder, "update-index", "--refresh")
    return folder


def content(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


def tree(folder: Path) -> dict[str, bytes]:
    """The content of all files, without what a quarantine holds."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and ".sandboxd-kept" not in str(path)
    }


def attack(box: Box, how: str, workspace: Path, program: Sequence[str], *args: object) -> Ran:
    """In a sandbox that is made for it, one that is up already, or one that stays up."""
    params = {"preset": "workspace-write", "workspace": str(workspace)}
    argv = [*program, *map(str, args)]
    if how == "warm":
        for _ in range(2):
            assert box.run("/bin/true", **params).exited(0)
    if how != "persistent":
        return box.run(*argv, **params)
    made = box.connection.call("sandbox/create", params)["sandbox"]
    try:
        return box.run(*argv, sandbox=made, cwd=str(workspace))
    finally:
        try:
            box.connection.call("sandbox/destroy", {"sandbox": made})
        except Exception as error:
            if "there is no sandbox" not in str(error):
                raise


def wait_for(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline, "it did not happen within a minute"
        time.sleep(0.05)


def is_reported(ran: Ran) -> bool:
    return any(denial["kind"] == "protected_path" for denial in ran.denials)
