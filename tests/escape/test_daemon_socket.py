"""The daemon's own socket: no command reaches it, and it refuses a peer that runs below it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from support.attacks import Box, freely, python, weakest

pytestmark = pytest.mark.isolation


ASK_DAEMON = python("""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(20)
        client.connect(args[0])
        client.sendall(b'{"jsonrpc": "2.0", "id": 1, "method": "status"}\\n')
        answer = client.makefile().readline()
        worked() if '"result"' in answer else blocked(answer.strip())
""")


def test_daemons_socket_is_not_reached(box: Box) -> None:
    """Ask the daemon for a wider sandbox from inside one."""
    path = box.daemon.socket
    assert freely(ASK_DAEMON, path).worked
    for manifest in ({}, weakest()):
        assert box.attack(ASK_DAEMON, path, manifest=manifest).blocked


def test_daemons_socket_is_masked_in_an_allowed_folder(box: Box) -> None:
    """The same, when the caller allows the folder that contains it."""
    path = box.daemon.socket
    above = str(box.daemon.folder)
    for field in ("fs_read_allow", "fs_write_allow"):
        manifest = weakest() | {field: [above]}
        assert box.attack(ASK_DAEMON, path, manifest=manifest).blocked
    assert freely(ASK_DAEMON, path).worked


def test_daemon_refuses_a_peer_that_descends_from_it(box: Box, workspace: Path) -> None:
    """A connection that was made outside and handed in: the peer is still the one who made it.

    What the daemon must refuse is a peer below itself, however it got to the socket.
    """
    alias = workspace / "alias"
    os.link(box.daemon.socket, alias)
    assert freely(ASK_DAEMON, alias).worked
    inside = box.attack(ASK_DAEMON, alias, manifest=weakest(workspace))
    assert inside.blocked
    # Where the socket can be connected at all it is the daemon that says no.
    if inside.words.startswith("{"):
        assert json.loads(inside.words)["error"]["data"]["kind"] == "Unauthorized"
