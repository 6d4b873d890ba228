"""What `sandboxctl doctor` says about the user's git configuration."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping

WHAT = "git: safe.bareRepository"
WHY = (
    "is not 'explicit': if a command turns a folder into a bare repository, the next git status "
    "there runs the programs that its config names"
)
FIX = "git config --global safe.bareRepository explicit  (git 2.38 or later)"
_PATIENCE_S = 5


def bare_repository_setting(environment: Mapping[str, str]) -> str | None:
    """The user's value, empty if there is none; None without git.

    Nothing in a workspace counts: relative folders in PATH are left out, GIT_DIR names no
    repository, and the current folder is the root.
    """
    folders = environment.get("PATH", os.defpath).split(os.pathsep)
    program = shutil.which("git", path=os.pathsep.join(filter(os.path.isabs, folders)))
    if program is None:
        return None
    env = {
        **{name: value for name, value in environment.items() if not name.startswith("GIT_")},
        "GIT_DIR": os.devnull,
    }
    try:
        done = subprocess.run(
            [program, "config", "--get", "safe.bareRepository"],
            cwd=os.path.abspath(os.sep),
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PATIENCE_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode(errors="replace").strip()
