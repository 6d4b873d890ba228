"""Make this Python look like macOS's, as far as the product asks: import it before the product.

`sys.platform` says darwin and what only Linux has is gone from the standard library's modules. What
macOS has instead is put in its place by doubles, in the one module of the product that calls it.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import ctypes
import fcntl
import logging.handlers
import os
import resource
import select
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import sys
import tempfile

import anyio
import anyio._backends._asyncio
import jsonrpcserver
import msgspec

_LOADED = (asyncio, concurrent.futures, ctypes, logging.handlers, shutil, ssl, subprocess, tempfile,
           anyio, jsonrpcserver, msgspec)  # fmt: skip
_ONLY_LINUX = {
    os: "O_PATH O_TMPFILE memfd_create pidfd_open splice pipe2 setns unshare getxattr setxattr "
    "listxattr SPLICE_F_MOVE SPLICE_F_NONBLOCK eventfd fdatasync MFD_CLOEXEC copy_file_range",
    socket: "SO_PEERCRED MSG_CMSG_CLOEXEC AF_NETLINK AF_VSOCK AF_PACKET SOCK_CLOEXEC SOCK_NONBLOCK",
    select: "epoll",
    signal: "pidfd_send_signal",
    resource: "prlimit",
    fcntl: "F_ADD_SEALS F_GET_SEALS F_SEAL_SEAL F_SEAL_SHRINK F_SEAL_GROW F_SEAL_WRITE "
    "F_SETPIPE_SZ F_GETPIPE_SZ",
}
_PEERCRED = socket.SO_PEERCRED


def become_macos() -> None:
    for module, names in _ONLY_LINUX.items():
        for name in names.split():
            if hasattr(module, name):
                delattr(module, name)
    sys.platform = "darwin"


def install_doubles() -> None:
    """After the product was imported."""
    from sandboxd.macos import census, launchd, peers, process
    from sandboxd.platform import macos as platform_macos
    from sandboxd.platform import path_case
    from sandboxd.rpc.transport import unix

    platform_macos._refuse_debuggers = lambda: None
    launchd._launch_activate_socket = lambda name: (3, [])  # ESRCH: launchd did not start this
    peers.peer_of = _peer_of
    census.SandboxCensus.sandboxed = lambda self, pid: False  # type: ignore[method-assign]
    process._RSS_UNIT = 1024  # Linux's kernel counts in KiB
    unix.is_hung_up = _is_hung_up
    path_case.path_of = lambda fd: os.readlink(f"/proc/self/fd/{fd}")


def _peer_of(sock: socket.socket) -> object:
    from sandboxd.macos.peers import MacPeer

    pid, uid, _ = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, _PEERCRED, 12))
    return MacPeer(uid, pid)


def _is_hung_up(sock: socket.socket) -> bool:
    poll = select.poll()
    poll.register(sock, 0)
    return bool(poll.poll(0))
