"""The landlock backend: our init without bwrap, for machines where namespaces are unavailable."""

from sandboxd.backends.interface import BackendContext
from sandboxd.backends.landlock.backend import Landlock

__all__ = ["Landlock", "make"]


def make(context: BackendContext) -> Landlock:
    return Landlock(context.support)
