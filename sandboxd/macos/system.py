"""What the backend needs of macOS itself, in one object: tests give doubles of it elsewhere."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

import msgspec

from sandboxd.macos import lifeline, logs
from sandboxd.macos.census import Census, SandboxCensus
from sandboxd.platform.path_case import on_disk

SANDBOX_EXEC = "/usr/bin/sandbox-exec"
LAUNCHER = os.path.join(os.path.dirname(__file__), "launcher", "sandboxd-launcher")


class MacSystem(msgspec.Struct, frozen=True):
    """`sandboxed`: whether a process is in any sandbox. `log_command` None: no log is read.

    `isolates` False: a double that starts commands and confines nothing, and says so in every
    tier. `layer`: what `status` says about how far this was verified.
    """

    census: Census
    sandboxed: Callable[[int], bool]
    sandbox_exec: str = SANDBOX_EXEC
    launcher: str = LAUNCHER
    lifeline_module: str = lifeline.MODULE
    on_disk: Callable[[str], str] = on_disk
    log_command: tuple[str, ...] | None = None
    isolates: bool = True
    layer: str = "not verified on a real macOS"


def mac_system() -> MacSystem:
    if sys.platform != "darwin":
        raise OSError("this is not macOS")
    census = SandboxCensus()
    return MacSystem(census, census.sandboxed, log_command=tuple(logs.command()))
