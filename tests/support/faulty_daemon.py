"""`python -m support.faulty_daemon`: sandboxd with a faulty backend in the place of one backend."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import sandboxd.daemon.daemon
from sandboxd.backends.interface import BackendContext
from sandboxd.backends.registry import BACKENDS, BackendEntry, Registry, registry
from sandboxd.backends.unsandboxed.linux import UnsandboxedLinux
from sandboxd.cli import main
from support.faulty_backends import FAULTY_BACKENDS, VARIABLE


def _registry(context: BackendContext, entries: Sequence[BackendEntry] = BACKENDS) -> Registry:
    kind, _, name = os.environ[VARIABLE].partition(":")
    honest = registry(context, entries)
    faulty = FAULTY_BACKENDS[kind](honest[name], UnsandboxedLinux(context.support, permitted=True))
    backends = [faulty if n == name else honest[n] for n in honest.names()]
    return Registry(backends, honest.automatic)


if __name__ == "__main__":
    sandboxd.daemon.daemon.registry = _registry  # type: ignore[attr-defined]
    sys.exit(main())
