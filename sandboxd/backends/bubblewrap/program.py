"""The bwrap binary: where it is and which options it has."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from functools import lru_cache


@dataclass(frozen=True, slots=True)
class Program:
    path: str
    version: str
    bind_fd: bool
    disable_userns: bool


def find() -> Program | None:
    """Looked up each time: it may be installed while the daemon runs."""
    path = shutil.which("bwrap", path=os.environ.get("PATH") or "/usr/local/bin:/usr/bin:/bin")
    if path is None:
        return None
    try:
        return _inspect(path, os.stat(path).st_mtime_ns)
    except (OSError, subprocess.SubprocessError):
        return None


@lru_cache(maxsize=4)
def _inspect(path: str, _mtime_ns: int) -> Program:
    said = subprocess.run([path, "--help"], capture_output=True, text=True, timeout=10, check=False)
    options = said.stdout + said.stderr
    version = subprocess.run(
        [path, "--version"], capture_output=True, text=True, timeout=10, check=False
    )
    return Program(
        path=path,
        version=version.stdout.strip().removeprefix("bubblewrap "),
        bind_fd="--ro-bind-fd" in options,
        disable_userns="--disable-userns" in options,
    )
