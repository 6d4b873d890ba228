"""A workspace on a full disk: what is protected does not stay for lack of room to move it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from support.attacks import Box
from support.backends import LINUX, product_name, running_backend

pytestmark = [pytest.mark.requires("root", "git")]
SMALL = """
    mount -t tmpfs -o size=1m,mode=755 none "$1" && git init -q "$1" && shift && exec "$@"
"""
# One page is left for each file that comes.
FILL = "head -c 2M /dev/zero > big 2>&-; truncate -s -4096 big; "
ATTACKS = {
    "a file": ("echo evil > .envrc", ".envrc"),
    "a folder": ("mkdir .vscode; echo evil > .vscode/tasks.json", ".vscode/tasks.json"),
    "a second config": ("echo '[core]' > .git/config.worktree", ".git/config.worktree"),
    "HEAD": ("echo nothing > .git/HEAD", ".git/HEAD"),
}


@pytest.mark.parametrize("backend", [name for name in LINUX if name != "docker"])
def test_protected_paths_on_a_full_disk(backend: str, workspace: Path) -> None:
    prefix = ["unshare", "--mount", "sh", "-c", SMALL, "sh", str(workspace)]
    with running_backend(backend, prefix=prefix) as daemon:
        box = Box(product_name(backend), daemon)
        inside = Path(f"/proc/{daemon.pid}/root{workspace}")
        head = (inside / ".git/HEAD").read_bytes()
        params = {"preset": "workspace-write", "workspace": str(workspace)}
        for name, (script, target) in ATTACKS.items():
            ran = box.shell(FILL + script, **params)
            assert any(d["kind"] == "protected_path" for d in ran.denials), (name, ran.story)
            assert target == ".git/HEAD" or not (inside / target).exists(), (name, ran.story)
            assert (inside / ".git/HEAD").read_bytes() == head, (name, ran.story)
            box.shell("rm -rf big .sandboxd-kept*", **params)
        control = ["nsenter", "--mount", "--target", str(daemon.pid), "--"]
        for script, target in ATTACKS.values():
            subprocess.run([*control, "sh", "-c", f"cd {workspace}; {FILL}{script}"], check=True)
            assert (inside / target).stat().st_size > 0, target
            (inside / "big").unlink()
        box.close()
