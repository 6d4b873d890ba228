"""A user whose inotify limits are used up: protected paths are looked at by a clock instead."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.attacks import Box
from support.backends import LINUX, environment, product_name, running_backend
from support.daemon import running_daemon
from support.git_attacks import make_repository

pytestmark = [pytest.mark.isolation, pytest.mark.requires("git", "seccomp")]
WITHOUT = Path(__file__).parents[1] / "support" / "without_syscalls.py"


@pytest.fixture(
    scope="module",
    params=[(b, what) for b in LINUX if b != "docker" for what in ("instances", "watches")],
    ids=lambda value: "-".join(value),
)
def limited(request: pytest.FixtureRequest) -> Iterator[Box]:
    backend, what = request.param
    with running_backend(backend, prefix=[sys.executable, str(WITHOUT), what]) as daemon:
        box = Box(product_name(backend), daemon)
        yield box
        box.close()


WATCH = """
import os
from sandboxd.linux.inotify import IN_CREATE, Inotify
Inotify().add(os.open("/", os.O_PATH), IN_CREATE)
"""


def test_control_no_folder_can_be_watched() -> None:
    watch = [sys.executable, "-c", WATCH]
    assert subprocess.run(watch, check=False).returncode == 0
    for what in ("instances", "watches"):
        lacking = [sys.executable, str(WITHOUT), what, *watch]
        done = subprocess.run(lacking, capture_output=True, text=True, check=False)
        assert "OSError" in done.stderr


@pytest.mark.parametrize("how", ["cold", "persistent"])
def test_what_appears_and_changes_is_undone(limited: Box, workspace: Path, how: str) -> None:
    repository = make_repository(workspace)
    config = (repository / ".git/config").read_bytes()
    script = "echo evil > .envrc; echo '[core]' >> .git/config; echo > .git/HEAD; true"
    params = {"preset": "workspace-write", "workspace": str(repository)}
    if how == "persistent":
        made = limited.connection.call("sandbox/create", params)["sandbox"]
        script = f"({script}; sleep 60) > /dev/null 2>&1 &"
        limited.shell(script, sandbox=made, cwd=str(repository))
    else:
        ran = limited.shell(script, **params)
        assert any(d["kind"] == "protected_path" for d in ran.denials), ran.story
    deadline = time.monotonic() + 20
    while (
        (repository / ".envrc").exists()
        or (repository / ".git/config").read_bytes() != config
        or (repository / ".git/HEAD").read_text() == "\n"
    ):
        assert how == "persistent"
        assert time.monotonic() < deadline
        time.sleep(0.05)


SET_LIMIT = 'echo 0 > /proc/sys/user/max_inotify_$0 && exec "$@"'
NAMESPACE = ["unshare", "--user", "--map-root-user", "sh", "-c", SET_LIMIT]


# Another user would be root in that namespace, without root's rights outside of it.
@pytest.mark.requires("root")
@pytest.mark.parametrize("what", ["instances", "watches"])
@pytest.mark.parametrize("backend", [name for name in LINUX if name != "docker"])
def test_limits_that_are_used_up_in_the_kernel(workspace: Path, backend: str, what: str) -> None:
    """The limits of a user namespace that the daemon and its client are in."""
    prefix = [*NAMESPACE, what]
    done = subprocess.run(
        [*prefix, sys.executable, "-c", WATCH], capture_output=True, text=True, check=False
    )
    assert "OSError" in done.stderr
    repository = make_repository(workspace)
    script = "echo evil > .envrc; echo > .git/HEAD; sleep 2; cat .envrc"
    with running_daemon(env=environment(backend), prefix=prefix) as daemon:
        enter = ["nsenter", "--user", "--preserve-credentials", "--target", str(daemon.pid)]
        client = [sys.executable, "-m", "sandboxd_client.cli", "run", "--socket", daemon.socket]
        done = subprocess.run(
            [*enter, *client, "-w", str(repository), "--json", "-c", script],
            capture_output=True, text=True, check=False, timeout=120, cwd=repository,
        )  # fmt: skip
    assert "protected_path" in done.stdout, done.stderr
    assert not (repository / ".envrc").exists()
    assert (repository / ".git/HEAD").read_text().startswith("ref: ")
