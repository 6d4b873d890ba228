"""Bubblewrap: namespaces and mounts by `bwrap`, our init as PID 1 inside."""

from sandboxd.backends.bubblewrap.backend import Bubblewrap
from sandboxd.backends.interface import BackendContext

__all__ = ["Bubblewrap", "make"]


def make(context: BackendContext) -> Bubblewrap:
    return Bubblewrap(context.support, clones=context.config.pool.template)
