"""The landlock backend: our init without bwrap, for machines where namespaces are unavailable."""

from sandboxd.backends.landlock.backend import Landlock

__all__ = ["Landlock"]
