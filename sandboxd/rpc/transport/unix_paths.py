"""The files beside a Unix socket: what the daemon keeps there, and what no sandbox may see."""

from __future__ import annotations

import os
from contextlib import suppress

from sandboxd.rpc.transport.interface import Listener
from sandboxd_proto import locations


def approver_file(listener: Listener) -> str:
    return locations.approver_file(listener.path)


def hidden_paths(listener: Listener) -> tuple[str, ...]:
    """The socket's folder, where it is ours alone; in a shared one only our own files."""
    folder = os.path.dirname(listener.path)
    if os.path.basename(folder).startswith("sandboxd"):
        return (folder,)
    if not listener.made_here:  # nothing has made the lock, and only what exists can be masked
        with suppress(OSError):
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
            os.close(os.open(f"{listener.path}.lock", flags, 0o600))
    return tuple(f"{listener.path}{end}" for end in ("", ".lock", ".approver"))
