"""The files beside a Unix socket: what the daemon keeps there, and what no sandbox may see."""

from __future__ import annotations

import os

from sandboxd.rpc.transport.interface import Listener
from sandboxd_proto import locations


def approver_file(listener: Listener) -> str:
    return locations.approver_file(listener.path)


def hidden_paths(listener: Listener) -> tuple[str, ...]:
    """The socket's folder, where it is ours alone; in a shared one only our own files."""
    folder = os.path.dirname(listener.path)
    if os.path.basename(folder).startswith("sandboxd"):
        return (folder,)
    return tuple(f"{listener.path}{end}" for end in ("", ".lock", ".approver"))
