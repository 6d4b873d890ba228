"""Compile the sandbox's init and the network helper while the package is built (Linux only)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PROGRAMS = (Path("sandboxd/linux/init"), Path("sandboxd/linux/netns"))


class CompileInit(BuildHookInterface):  # type: ignore[type-arg]
    """Makes the wheel platform specific and puts the static programs into it."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if sys.platform != "linux":
            return
        compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            raise RuntimeError(
                "sandboxd needs a C compiler to build its init: install gcc and libc6-dev"
            )
        root = Path(self.root)
        for folder in PROGRAMS:
            subprocess.run(["make", "-s", "-C", str(root / folder), f"CC={compiler}"], check=True)
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
