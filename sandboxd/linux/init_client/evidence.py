"""Collect the evidence about one command from its channel.

The number of messages is bounded, because a hostile init must not cost the daemon memory. Of the
paths that were not found only those are kept that exist on the host: a build looks for thousands
that exist nowhere.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import TypeVar

from sandboxd.linux.init_client import messages as wire
from sandboxd.linux.seccomp.names import call_name, kills
from sandboxd.policy.paths.hanging_mounts import HANGING
from sandboxd.types import Attempt, ConnectAttempt, Evidence, RefusedAccess, SocketKind, Wanted

A = TypeVar("A", ConnectAttempt, str)
MAX_CONNECTIONS = 64
MAX_REFUSED = 4096
MAX_CALLS = 32
MAX_FULL = 8
MAX_PEERS = 16
_SOCKETS: dict[wire.RefusedKind, SocketKind] = {
    wire.RefusedKind.STREAM: "stream",
    wire.RefusedKind.DATAGRAM: "datagram",
    wire.RefusedKind.BLOCKING_DATAGRAM: "blocking datagram",
    wire.RefusedKind.UNIX: "unix",
}

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
    def __init__(
        self, *, explained: bool, attempted: Callable[[Attempt], None] | None = None
    ) -> None:
        self.explained = explained
        self._attempted = attempted
        self._connections: dict[ConnectAttempt, None] = {}
        self._lookups: dict[str, None] = {}
        self._refused: dict[RefusedAccess, None] = {}
        self._calls: dict[str, None] = {}
        self._truncated = False
        self._peers: dict[str, None] = {}
        self._sockets: dict[SocketKind, None] = {}
        self._full: dict[str, bool] = {}

    def take(self, message: wire.Channel) -> bool:
        """Whether the message was evidence."""
        match message:
            case wire.Notified(address, port):
                self._attempt(self._connections, ConnectAttempt(address, port))
            case wire.LookedUp(name):
                self._attempt(self._lookups, name.lower())
            case wire.RefusedPeer(path):
                if len(self._peers) < MAX_PEERS:
                    self._peers[path] = None
            case wire.RefusedSocket(kind):
                self._sockets[_SOCKETS[kind]] = None
            case wire.RefusedPathsMessage(refusals) if self.explained:
                for refusal in refusals:
                    self._refusal(refusal)
            case wire.NoSpace(path, before):
                if len(self._full) < MAX_FULL:
                    self._full[path] = before and self._full.get(path, True)
            case wire.KilledCall(number) if self.explained:
                self._killed(call_name(number))
            case _:
                return False
        return True

    def _attempt(self, known: dict[A, None], attempt: A) -> None:
        if attempt in known or len(known) >= MAX_CONNECTIONS:
            return
        known[attempt] = None
        if self._attempted is not None:
            self._attempted(attempt)

    def _refusal(self, refusal: wire.RefusedPath) -> None:
        if not _could_be_ours(refusal):
            return
        if len(self._refused) >= MAX_REFUSED:
            self._truncated = True
            return
        access = RefusedAccess(refusal.path, _WANTED[refusal.wanted], refusal.errno)
        self._refused[access] = None

    def _killed(self, name: str) -> None:
        # A process that dies of SIGSYS in an allowed call (mostly kill) was sent that signal.
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
            full=tuple(path for path, before in self._full.items() if not before),
            full_before=tuple(path for path, before in self._full.items() if before),
            refused_peers=tuple(self._peers),
            refused_sockets=tuple(self._sockets),
        )


def _could_be_ours(refusal: wire.RefusedPath) -> bool:
    """A missing path is hidden only if the host has it, or (to create it) the folder above.

    A name that is not UTF-8 can be in no manifest. The command chooses the path: one on a mount
    that may hang is not looked at.
    """
    if not refusal.path.isprintable() and _is_not_text(refusal.path):
        return False
    if refusal.errno != errno.ENOENT:
        return True
    path = refusal.path
    if HANGING.reached((path,)):
        return False
    creates = refusal.wanted in (wire.Wanted.CREATE, wire.Wanted.RENAME)
    return os.path.lexists(path) or (creates and os.path.lexists(os.path.dirname(path)))


def _is_not_text(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return True
    return False
