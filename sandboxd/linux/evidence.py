"""What the kernel showed about one command, collected from its channel.

It hides how many messages that takes, and bounds them: what comes over a channel is the init's
word, and a sandbox that lies must not cost the daemon memory. Of the paths that were not found only
those are kept that the host has: a build looks for thousands that exist nowhere.
"""

from __future__ import annotations

import errno
import os

from sandboxd.linux import init_wire as wire
from sandboxd.linux.seccomp.names import call_name, kills
from sandboxd.sandbox import Connection, Evidence, RefusedAccess, Wanted

MAX_CONNECTIONS = 64
MAX_REFUSED = 4096
MAX_CALLS = 32

_WANTED: dict[wire.Wanted, Wanted] = {
    wire.Wanted.LOOK: "look",
    wire.Wanted.READ: "read",
    wire.Wanted.EXEC: "exec",
    wire.Wanted.ENTER: "enter",
    wire.Wanted.WRITE: "write",
    wire.Wanted.CREATE: "create",
    wire.Wanted.REMOVE: "remove",
    wire.Wanted.CHANGE: "change",
    wire.Wanted.PROBE: "probe",
    wire.Wanted.RENAME: "rename",
}


class EvidenceLog:
    def __init__(self) -> None:
        self.explained = False
        self._connections: dict[Connection, None] = {}
        self._lookups: dict[str, None] = {}
        self._refused: dict[RefusedAccess, None] = {}
        self._calls: dict[str, None] = {}
        self._truncated = False

    def take(self, message: wire.Channel) -> bool:
        """Whether the message was evidence."""
        match message:
            case wire.Notified(address, port):
                if len(self._connections) < MAX_CONNECTIONS:
                    self._connections[Connection(address, port)] = None
            case wire.LookedUp(name):
                if len(self._lookups) < MAX_CONNECTIONS:
                    self._lookups[name.lower()] = None
            case wire.Refused(refusals) if self.explained:
                for refusal in refusals:
                    self._refusal(refusal)
            case wire.KilledCall(number) if self.explained:
                self._killed(call_name(number))
            case _:
                return False
        return True

    def _refusal(self, refusal: wire.Refusal) -> None:
        if not _could_be_ours(refusal):
            return
        if len(self._refused) >= MAX_REFUSED:
            self._truncated = True
            return
        access = RefusedAccess(refusal.path, _WANTED[refusal.wanted], refusal.errno)
        self._refused[access] = None

    def _killed(self, name: str) -> None:
        # Whoever dies of SIGSYS in an allowed call (kill, mostly) was sent that signal.
        if kills(name) and len(self._calls) < MAX_CALLS:
            self._calls[name] = None

    def so_far(self) -> Evidence:
        return Evidence(
            connections=tuple(self._connections),
            lookups=tuple(self._lookups),
            explained=self.explained,
            refused=tuple(self._refused),
            killed_calls=tuple(self._calls),
            truncated=self._truncated,
        )


def _could_be_ours(refusal: wire.Refusal) -> bool:
    """A missing path is hidden only if the host has it, or (to create it) the folder above.

    A name that is not UTF-8 can be in no manifest.
    """
    if not refusal.path.isprintable() and _is_not_text(refusal.path):
        return False
    if refusal.errno != errno.ENOENT:
        return True
    path = refusal.path
    creates = refusal.wanted in (wire.Wanted.CREATE, wire.Wanted.RENAME)
    return os.path.lexists(path) or (creates and os.path.lexists(os.path.dirname(path)))


def _is_not_text(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return True
    return False
