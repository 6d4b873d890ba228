"""Tell a sandbox's init which Unix socket files of the host its commands may connect to.

The init (unix_peers.c) lets a command connect to the sockets of its own sandbox, and to those that
the caller named: a grant that is itself a socket file.
"""

from __future__ import annotations

import os
import stat

from sandboxd.linux.init_client import messages as wire
from sandboxd.policy.plan import SandboxSpec


def setup_flags(spec: SandboxSpec) -> wire.SetupFlag:
    if spec.network.kind == "inherit":
        return wire.SetupFlag.UNIX_PEERS | wire.SetupFlag.SHARED_NETWORK
    return wire.SetupFlag.UNIX_PEERS


def named_sockets(spec: SandboxSpec) -> list[wire.Check]:
    """The caller's own grants only. The mount of such a grant keeps its inode from being reused."""
    return [
        wire.Check(path=g.path, device=g.identity.device, inode=g.identity.inode)
        for g in spec.grants
        if g.origin == "caller" and not g.identity.is_dir and _is_socket(g.path)
    ]


def _is_socket(path: str) -> bool:
    """Only filters the list: the init compares the identity itself."""
    try:
        return stat.S_ISSOCK(os.lstat(path).st_mode)
    except OSError:
        return False
