"""The description of a filter; the key under which compiled programs are cached."""

from __future__ import annotations

from typing import Literal

import msgspec

Level = Literal["inherit", "baseline", "strict"]


class FilterSpec(msgspec.Struct, frozen=True):
    """One filter. Equal specs share one compiled program.

    level: the manifest's `syscall_policy`.
    restrict_families: the command has a network namespace of its own. Only AF_UNIX, AF_INET,
        AF_INET6 and AF_NETLINK (ROUTE) sockets can be made; others (AF_VSOCK) reach past the
        namespace.
    no_namespaces: the landlock backend, where the host's sockets, processes and System V objects
        are in reach: what Landlock does not cover is refused here.
    deny_inet: network is denied and there is no network namespace to do it: no socket but
        AF_UNIX can be made.
    refused_by_init: with no_namespaces, the filter that the init has loaded refuses Unix sockets
        and, with deny_inet, Internet sockets (NO_UNIX and NO_INET in its setup), and reports them.
    unconfined: no filter at all, for commands that run without a sandbox.
    """

    level: Level
    restrict_families: bool
    no_namespaces: bool = False
    deny_inet: bool = False
    unconfined: bool = False
    refused_by_init: bool = False
