"""The name under which a daemon marks what it makes on an engine or a server that others use."""

from __future__ import annotations

import os
import socket
from hashlib import sha256


def supervisor_identity(socket_path: str) -> str:
    """The identity of the daemons on this socket of this machine, of which one runs at a time.

    An engine may serve many machines: the path alone is not enough.
    """
    try:
        with open("/etc/machine-id", encoding="ascii") as file:
            machine = file.read().strip()
    except (OSError, UnicodeDecodeError):
        machine = ""
    facts = (machine or socket.gethostname(), os.path.realpath(socket_path))
    return sha256(repr(facts).encode("utf-8", "surrogateescape")).hexdigest()[:32]
