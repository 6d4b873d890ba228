"""Bubblewrap: namespaces and mounts by `bwrap`, our init as PID 1 inside."""

from sandboxd.backends.bubblewrap.backend import Bubblewrap

__all__ = ["Bubblewrap"]
