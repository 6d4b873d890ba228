"""What the daemon is made of on Linux: a Unix socket, and the backends below our init."""

from __future__ import annotations

import ctypes
import os
from contextlib import ExitStack, suppress

from sandboxd.backends.interface import BackendContext
from sandboxd.backends.linux_context import linux_support
from sandboxd.config.config import Config
from sandboxd.daemon.platform_parts import PlatformParts
from sandboxd.egress.service import EgressService
from sandboxd.linux.folder_notices import InotifyNotices
from sandboxd.linux.leftovers import collect_soon
from sandboxd.linux.rootfs.state import StateFolder
from sandboxd.policy.mounts.mount_plan import Host
from sandboxd.policy.mounts.own_paths import OwnPaths
from sandboxd.rpc.peer_auth import linux as peers
from sandboxd.rpc.transport.interface import Listener
from sandboxd.rpc.transport.systemd import Notifier, activated_socket
from sandboxd.rpc.transport.unix_listener import adopt, listen
from sandboxd.rpc.transport.unix_paths import approver_file, hidden_paths
from sandboxd_proto.locations import default_socket

# Of mallopt.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_LARGE_BYTES = 2 << 20


def listening(path: str | None) -> Listener:
    """ListenError where it cannot listen."""
    inherited = activated_socket(os.environ)
    if inherited is not None:
        return adopt(inherited, peers)
    return listen(path or default_socket(), peers)


def notifier() -> Notifier:
    return Notifier(os.environ)


def platform_parts(
    config: Config, host: Host, listener: Listener, held: ExitStack
) -> PlatformParts:
    _bound_heap()
    state = StateFolder(f"{listener.path}.state" if listener.made_here else None)
    held.callback(state.close)
    egress = EgressService(config.egress)

    def context(config: Config, path: str, own: OwnPaths) -> BackendContext:
        support = linux_support(state, host, egress, own.read_only)
        if support.cgroups is not None:
            held.callback(support.cgroups.close)
        return BackendContext(config, path, linux=support)

    return PlatformParts(
        context, egress.running, hidden=(state.path, *hidden_paths(listener)),
        forwards_folder=os.path.join(state.path, "fw"),  # short: a socket's path is limited
        make_folder=state.folder, notices=_folder_notices(held),
    )  # fmt: skip


def _bound_heap() -> None:
    """One for all threads: only one of them runs Python, and each other heap would keep half a
    megabyte. Large blocks are mapped apart, so that freed ones go back to the kernel: glibc would
    put them into the heap once it has seen one, and captured output would leave gaps there."""
    with suppress(AttributeError):  # another C library
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_ARENA_MAX, 1)
        mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)
        mallopt(_M_TRIM_THRESHOLD, 2 * _LARGE_BYTES)


def _folder_notices(held: ExitStack) -> InotifyNotices | None:
    """None where the user has no inotify instance left, or there is no /proc."""
    try:
        notices = InotifyNotices()
    except OSError:
        return None
    held.callback(notices.close)
    return notices


__all__ = ["approver_file", "collect_soon", "listening", "notifier", "platform_parts"]
