"""The Node.js client: its own tests, against a real daemon."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.daemon import running_daemon
from support.processes import process

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.requires("node")


@pytest.mark.timeout(300)
def test_the_node_client_passes_its_own_tests(tmp_path: Path) -> None:
    """In a copy: the checkout may not be writable for this user."""
    package = tmp_path / "client" / "node"
    shutil.copytree(
        ROOT / "client" / "node", package, ignore=shutil.ignore_patterns("node_modules")
    )
    (tmp_path / "proto").mkdir()
    shutil.copy(ROOT / "proto" / "openrpc.json", tmp_path / "proto")
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    npm = ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"]
    subprocess.run(npm, cwd=package, check=True, capture_output=True)
    with running_daemon() as daemon:
        env = {**os.environ, "SANDBOXD_SOCKET": daemon.socket, "WORKSPACE": str(workspace)}
        done = subprocess.run(
            ["node", "--test", "test/"], cwd=package, env=env, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stdout[-8000:]


STARTS = """
import { Client } from "sandboxd"
const client = await Client.connect()
const { pid } = await client.status()
console.log(pid)
await client.call("shutdown")
client.close()
"""


def test_the_node_client_starts_the_daemon(tmp_path: Path) -> None:
    """The control: without `sandboxctl` in PATH it says what to install."""
    (tmp_path / "node_modules").mkdir()
    (tmp_path / "node_modules" / "sandboxd").symlink_to(ROOT / "client" / "node")
    (tmp_path / "run").mkdir(mode=0o700)
    programs = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    env = {"HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path / "run")}
    node = shutil.which("node") or "node"

    def connect(path: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [node, "--input-type=module", "-e", STARTS], cwd=tmp_path, env={**env, "PATH": path},
            capture_output=True, text=True, check=False,
        )  # fmt: skip

    without = connect("/nonexistent")
    assert without.returncode == 1
    assert "DaemonNotRunning" in without.stderr
    done = connect(programs)
    assert done.returncode == 0, done.stderr
    deadline = time.monotonic() + 30
    while process(int(done.stdout)) is not None:
        assert time.monotonic() < deadline, "the daemon does not end"
        time.sleep(0.02)
