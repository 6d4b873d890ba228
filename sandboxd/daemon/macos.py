"""What the daemon is made of on macOS: a Unix socket, and the backend over sandbox-exec."""

from __future__ import annotations

import os
from contextlib import ExitStack

from sandboxd.backends.interface import BackendContext
from sandboxd.backends.macos_context import mac_support
from sandboxd.config.config import Config
from sandboxd.daemon.platform_parts import PlatformParts
from sandboxd.egress.service import EgressService
from sandboxd.linux.leftovers import collect_soon
from sandboxd.linux.rootfs.state import StateFolder
from sandboxd.macos import launchd
from sandboxd.policy.mounts.mount_plan import Host
from sandboxd.policy.mounts.own_paths import OwnPaths
from sandboxd.rpc.peer_auth import macos as peers
from sandboxd.rpc.transport.interface import Listener
from sandboxd.rpc.transport.notifier import NoNotifier
from sandboxd.rpc.transport.unix_listener import adopt, listen
from sandboxd.rpc.transport.unix_paths import approver_file, hidden_paths
from sandboxd_proto.locations import default_socket


def listening(path: str | None) -> Listener:
    """ListenError where it cannot listen."""
    inherited = launchd.activated_socket()
    if inherited is not None:
        return adopt(inherited, peers)
    return listen(path or default_socket(), peers)


def notifier() -> NoNotifier:
    return NoNotifier()


def platform_parts(
    config: Config, host: Host, listener: Listener, held: ExitStack
) -> PlatformParts:
    state = StateFolder(f"{listener.path}.state" if listener.made_here else None)
    held.callback(state.close)
    egress = EgressService(config.egress)

    def context(config: Config, path: str, own: OwnPaths) -> BackendContext:
        return BackendContext(config, path, macos=mac_support(state.path, host, egress))

    return PlatformParts(
        context, egress.running, hidden=(state.path, *hidden_paths(listener)),
        forwards_folder=os.path.join(state.path, "fw"),  # short: a socket's path is limited
        make_folder=state.folder,
    )  # fmt: skip


__all__ = ["approver_file", "collect_soon", "listening", "notifier", "platform_parts"]
