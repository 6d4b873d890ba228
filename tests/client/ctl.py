"""`sandboxctl` as a user starts it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from sandboxd_client.cli.table import COMMANDS

ROOT = Path(__file__).resolve().parents[2]


def environment(**more: str) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("HOME", "LANG") if name in os.environ}
    kept["PATH"] = "/usr/local/bin:/usr/bin:/bin"  # one that every user can search
    paths = os.pathsep.join(str(ROOT / part) for part in ("", "client", "proto"))
    return {**kept, "PYTHONPATH": paths, "TERM": "xterm", **more}


class Ctl:
    """Starts `sandboxctl` as a user would."""

    def __init__(self, socket_path: str, workspace: Path) -> None:
        self.socket_path, self.workspace = socket_path, workspace
        self.extra: list[str] = ["--no-autostart"]

    def env(self, **more: str) -> dict[str, str]:
        return environment(**more)

    def argv(self, command: str, *arguments: str) -> list[str]:
        named = "--socket" in [flag.name for flag in COMMANDS[command].flags]
        options = ["--socket", self.socket_path] if named else []
        if "--no-autostart" in [flag.name for flag in COMMANDS[command].flags]:
            options += self.extra
        words = command.split()
        return [sys.executable, "-m", "sandboxd_client.cli", *words, *options, *arguments]

    def __call__(
        self, command: str, *arguments: str, input: bytes | None = b"", **env: str
    ) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            self.argv(command, *arguments), input=input, capture_output=True, timeout=60,
            cwd=self.workspace, env=environment(**env),
        )  # fmt: skip

    def start(self, command: str, *arguments: str, **popen: Any) -> subprocess.Popen[bytes]:
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE,
                   "stderr": subprocess.PIPE}  # fmt: skip
        return subprocess.Popen(
            self.argv(command, *arguments), cwd=self.workspace, env=environment(),
            bufsize=0, **{**streams, **popen},
        )  # fmt: skip
