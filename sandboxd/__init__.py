"""The daemon: runs commands in a sandbox for every agent and editor on the machine."""

__version__ = "0.1.0"
