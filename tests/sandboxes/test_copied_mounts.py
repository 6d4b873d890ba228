"""Mounts that a clone has from its template, and that the host takes away while a command runs.

Removing its mount point takes a mount out of every namespace. No path of a clone leads to what lies
below its private /tmp, so that may go. What a command can see may not.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from support.daemon import Daemon

pytestmark = [pytest.mark.requires("bubblewrap", "root"), pytest.mark.isolation]
StartDaemon = Callable[..., Daemon]
WAIT = 'touch "$0/began"; until [ -e "$0/go" ]; do sleep 0.02; done'


@pytest.fixture
def start_daemon(start_daemon: StartDaemon) -> StartDaemon:
    """With templates, in a pass without them too."""
    return partial(start_daemon, env={"SANDBOXD_POOL_TEMPLATE": "true"})


def outcome_without(daemon: Daemon, workspace: Path, mounted: Path, *, granted: bool) -> str:
    """Of a command that runs while the mount is taken away."""
    params = {
        "preset": "workspace-write",
        "workspace": str(workspace),
        "manifest": {"fs_read_allow": [str(mounted.parent)] if granted else []},
    }
    with daemon.connect() as connection:
        assert connection.call("execute", {**params, "argv": ["/bin/true"]})["exit_code"] == 0
        asked = {**params, "argv": ["/bin/sh", "-c", WAIT, str(workspace)]}
        number = connection.start("execute", asked)
        while not (workspace / "began").exists():
            time.sleep(0.01)
        subprocess.run(["umount", "-l", mounted], check=True)
        mounted.rmdir()
        (workspace / "go").touch()
        result: str = connection.result(number)["outcome"]
        return result


@pytest.mark.parametrize(
    ("above", "granted", "outcome"),
    [
        ("/tmp", False, "exited"),
        ("/tmp", True, "isolation_lost"),  # moved into the private /tmp
        ("/opt", False, "isolation_lost"),
    ],
)
def test_a_mount_may_go_where_no_path_leads_to_it(
    start_daemon: StartDaemon, tmp_path: Path, above: str, granted: bool, outcome: str
) -> None:
    daemon = start_daemon(config="[pool]\nenabled = false\n")
    with tempfile.TemporaryDirectory(dir=above) as folder:
        mounted = Path(folder, "mounted")
        mounted.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "test", mounted], check=True)
        try:
            assert outcome_without(daemon, tmp_path, mounted, granted=granted) == outcome
        finally:
            if mounted.is_mount():
                subprocess.run(["umount", "-l", mounted], check=True)
