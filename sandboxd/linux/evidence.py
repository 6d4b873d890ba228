"""What the kernel showed about one command, collected from its channel.

It hides how many messages that takes, and bounds them: what comes over a channel is the init's word,
and a sandbox that lies must not cost the daemon memory.
"""

from __future__ import annotations

from sandboxd.linux import init_wire as wire
from sandboxd.sandbox import Connection, Evidence

MAX_CONNECTIONS = 64


class EvidenceLog:
    def __init__(self) -> None:
        self._connections: dict[Connection, None] = {}
        self._lookups: dict[str, None] = {}

    def take(self, message: wire.Channel) -> bool:
        """Whether the message was evidence."""
        match message:
            case wire.Notified(address, port):
                if len(self._connections) < MAX_CONNECTIONS:
                    self._connections[Connection(address, port)] = None
            case wire.LookedUp(name):
                if len(self._lookups) < MAX_CONNECTIONS:
                    self._lookups[name.lower()] = None
            case _:
                return False
        return True

    def so_far(self) -> Evidence:
        return Evidence(tuple(self._connections), tuple(self._lookups))
