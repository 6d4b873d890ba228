"""`python -m support.lying_daemon`: sandboxd with a liar in the place of one backend."""

from __future__ import annotations

import os
import sys

import sandboxd.daemon
from sandboxd.backends.registry import Registry, registry
from sandboxd.backends.support import LinuxSupport
from sandboxd.backends.unsandboxed import Unsandboxed
from sandboxd.cli import main
from sandboxd.config import Config
from support.liars import LIARS, VARIABLE


def _registry(config: Config, support: LinuxSupport | None, socket_path: str) -> Registry:
    kind, _, name = os.environ[VARIABLE].partition(":")
    honest = registry(config, support, socket_path)
    assert support is not None
    liar = LIARS[kind](honest[name], Unsandboxed(support, permitted=True))
    return Registry([liar if n == name else honest[n] for n in honest.names()])


if __name__ == "__main__":
    sandboxd.daemon.registry = _registry  # type: ignore[attr-defined]
    sys.exit(main())
