"""`sandboxctl` with a daemon of its own, for the tests of explain mode."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from support.daemon import ROOT, Daemon


@dataclass(frozen=True)
class Ctl:
    """Starts `sandboxctl` in the workspace, as a user would."""

    daemon: Daemon
    place: Path

    @property
    def workspace(self) -> Path:
        return self.place / "workspace"

    def __call__(self, *words: str) -> subprocess.CompletedProcess[str]:
        paths = os.pathsep.join(str(ROOT / part) for part in ("", "client", "proto"))
        env = {
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "HOME": str(self.place / "home"),
            "LANG": "C.UTF-8",
            "PYTHONPATH": paths,
            "SANDBOXD_SOCKET": self.daemon.socket,
        }
        return subprocess.run(
            [sys.executable, "-m", "sandboxd_client.cli", *words],
            cwd=self.workspace, env=env, capture_output=True, text=True, timeout=60, check=False,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
