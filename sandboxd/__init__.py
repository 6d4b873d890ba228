"""The daemon: runs commands in a sandbox for every agent and editor on the machine."""

from sandboxd_proto import __version__

__all__ = ["__version__"]
