"""Compile the C programs of this platform while the package is built.

The wheel holds static programs and no extension modules: one wheel serves every Python 3 on a
platform, so its tag is `py3-none-<platform>`.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PROGRAMS = {
    "linux": (Path("sandboxd/linux/init"), Path("sandboxd/linux/netns")),
    "darwin": (Path("sandboxd/macos/launcher"),),
}


class CompileInit(BuildHookInterface):  # type: ignore[type-arg]
    """Makes the wheel platform specific and puts the static programs into it."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        self._compile(PROGRAMS.get(sys.platform, ()))
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform_tag()}"

    def _compile(self, programs: tuple[Path, ...]) -> None:
        if not programs:
            return
        compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            raise RuntimeError(
                "sandboxd needs a C compiler: install gcc and libc6-dev, on macOS run "
                "xcode-select --install"
            )
        for folder in programs:
            path = Path(self.root) / folder
            subprocess.run(["make", "-s", "-C", str(path), f"CC={compiler}"], check=True)


def platform_tag() -> str:
    """The platforms that the wheel's programs run on.

    The Linux programs are static and need no libc, so both libc families are named. The macOS
    wheel holds the launcher for both processors. The Windows wheel holds Python only; its tag
    keeps pip from installing it on Linux.
    """
    machine = platform.machine().lower()
    if sys.platform == "linux":
        return f"manylinux_2_17_{machine}.musllinux_1_1_{machine}"
    if sys.platform == "darwin":
        return "macosx_11_0_universal2"
    return "win_arm64" if machine in ("arm64", "aarch64") else "win_amd64"
