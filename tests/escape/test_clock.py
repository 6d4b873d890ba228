"""The clock is set while commands run, by the user or a time service."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.attacks import Box, Build
from support.backends import LINUX, product_name, running_backend
from support.git_attacks import make_repository, wait_for

pytestmark = [pytest.mark.isolation, pytest.mark.requires("git")]
HOUR = 3600
SetClock = Callable[[int], None]


@pytest.fixture
def clock(tmp_path: Path) -> Path:
    file = tmp_path / "clock"
    file.write_text("0")
    return file


@pytest.fixture(params=[name for name in LINUX if name != "docker"])
def clock_box(request: pytest.FixtureRequest, build: Build, clock: Path) -> Iterator[Box]:
    """A daemon whose clock is ahead of the kernel's by what `clock` says."""
    (library,) = build("set_clock", "-shared", "-fPIC")
    env = {"LD_PRELOAD": library, "SET_CLOCK": str(clock)}
    with running_backend(request.param, env=env) as daemon:
        box = Box(product_name(request.param), daemon)
        yield box
        box.close()


def set_clock(clock: Path, seconds: int) -> None:
    draft = clock.with_name("draft")
    draft.write_text(str(seconds))
    draft.rename(clock)


PLANTED = {
    "a ref that names a file": "echo ref: commondir > .git/refs/heads/evil",
    "a link among the objects": "ln -s /tmp .git/objects/pack/evil",
    "a hook": "cp file .git/hooks/evil",
    "a rebase": "cd .git; mkdir rebase-merge; echo exec touch x > rebase-merge/git-rebase-todo",
}


@pytest.mark.parametrize("what", PLANTED)
def test_what_is_planted_after_the_clock_was_set_back_is_found(
    clock_box: Box, clock: Path, workspace: Path, what: str
) -> None:
    """The times of the files are an hour before the start of the command, by its clock."""
    repository = make_repository(workspace)
    before = sorted(repository.rglob("*evil*"))
    set_clock(clock, HOUR)
    script = f"touch ready; while [ ! -e go ]; do sleep 0.05; done; {PLANTED[what]}"
    params = {"preset": "workspace-write", "workspace": str(repository)}
    number = clock_box.connection.start(
        "execute", {"argv": ["sh", "-c", script], "backend": clock_box.backend, **params}
    )
    wait_for((repository / "ready").exists)
    set_clock(clock, 0)
    (repository / "go").touch()
    result = clock_box.connection.result(number)
    kept = [path for path in repository.rglob("*evil*") if ".sandboxd-kept" not in str(path)]
    assert sorted(kept) == before, result
    assert not (repository / ".git/rebase-merge").exists()
    refused = "hook" in what and result["exit_code"] != 0  # where it is a mount
    assert refused or any(one["kind"] == "protected_path" for one in result["denials"]), result


@pytest.mark.parametrize("seconds", [-24 * HOUR, 24 * HOUR])
def test_a_timeout_is_counted_by_another_clock(
    clock_box: Box, clock: Path, workspace: Path, seconds: int
) -> None:
    """Neither ends a command early nor lets it run on."""
    params = {
        "preset": "workspace-write",
        "workspace": str(workspace),
        "backend": clock_box.backend,
    }

    def run(script: str, timeout_s: int) -> dict[str, object]:
        (workspace / "ready").unlink(missing_ok=True)
        manifest = {"timeout": {"secs": timeout_s}}
        argv = ["sh", "-c", f"touch ready; {script}"]
        number = clock_box.connection.start(
            "execute", {"argv": argv, "manifest": manifest, **params}
        )
        wait_for((workspace / "ready").exists)
        set_clock(clock, seconds)
        (workspace / "go").touch()
        result: dict[str, object] = clock_box.connection.result(number)
        set_clock(clock, 0)
        return result

    assert run("while [ ! -e go ]; do sleep 0.05; done", 60)["outcome"] == "exited"
    began = time.monotonic()
    assert run("sleep 600", 3)["outcome"] == "timeout"
    assert time.monotonic() - began >= 3
