"""The files beside a Unix socket in a folder that is not the daemon's own."""

from __future__ import annotations

import socket
from pathlib import Path

from sandboxd.rpc.peer_auth import linux as peers
from sandboxd.rpc.transport.unix_listener import adopt
from sandboxd.rpc.transport.unix_paths import hidden_paths


def test_the_lock_beside_an_adopted_socket_exists_and_so_can_be_masked(tmp_path: Path) -> None:
    """A command that could make it would keep the next daemon from starting."""
    path = tmp_path / "d.sock"
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(path))
        sock.listen()
        for _ in range(2):
            hidden = hidden_paths(adopt(sock, peers))
            assert hidden == tuple(f"{path}{end}" for end in ("", ".lock", ".approver"))
            assert Path(f"{path}.lock").stat().st_mode & 0o777 == 0o600
