"""firejail (Debian): a command line for each command; it has no warm form."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.peers.peer import Peer, Run, Unusable, quietly, spawning

# No network, no capabilities, its default filter: what the others do too.
FLAGS = ("--quiet", "--noprofile", "--net=none", "--caps.drop=all", "--seccomp", "--private-tmp")


def install(folder: Path) -> None:
    """A set-uid program comes from the distribution or not at all."""
    if shutil.which("firejail") is not None:
        return
    if os.geteuid() != 0:
        raise Unusable("it is not installed, and only root can install it")
    quietly("apt-get", "install", "-y", "--no-install-recommends", "firejail")


@contextmanager
def opened(folder: Path, workspace: Path) -> Iterator[Run]:
    with spawning(["firejail", *FLAGS, "--"], workspace) as run:
        yield run


PEER = Peer("firejail", install, opened)
