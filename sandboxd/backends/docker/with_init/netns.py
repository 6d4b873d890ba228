"""Sockets in a container's network namespace, made by a second, short-lived container.

The container of a sandbox never has capabilities, so its init cannot route all addresses to itself.
A second container joins its network (and nothing else), as root with the three needed capabilities,
before any command runs. Only our helper runs in it, from its own folder: nothing of the image is
executed, and the sandbox cannot reach its socket. The daemon needs no privileges beyond the
engine's socket.
"""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack

from sandboxd.backends.docker.containers import Containers, new_name
from sandboxd.backends.docker.engine import Body, EngineError
from sandboxd.backends.docker.spec import ContainerContext
from sandboxd.backends.docker.with_init.handshake import INSIDE, Handshake
from sandboxd.linux.init_client.launch import LaunchFailed
from sandboxd.linux.netns.handed_sockets import (
    PATH,
    SocketRequest,
    ask,
    netns_error,
    receive_sockets,
)
from sandboxd.policy.plan import RunAs

ENTRY = (f"{INSIDE}/netns", "--connect", f"{INSIDE}/control")
# Threads count too, and what starts a container in runc is a Go program: on a busy machine it makes
# more of them, and ends when it cannot.
PROCESSES = 64
# To route and to add addresses; to bind ports below 1024, which some engines restrict; to see which
# connections are attempted.
CAPABILITIES = ("NET_ADMIN", "NET_BIND_SERVICE", "NET_RAW")
_NOBODY = 65534
Ended = Callable[[str], Awaitable[str | None]]


class NetnsHelpers:
    """`parent`: a folder of the daemon's that the engine can bind from.

    `ended`: why a container will not answer any more, None while it may.
    """

    def __init__(self, containers: Containers, parent: str, ended: Ended) -> None:
        self._containers = containers
        self._parent = parent
        self._ended = ended
        self._program = os.path.join(parent, "netns")

    async def sockets(
        self,
        container: str,
        frame: ContainerContext,
        socket_requests: Sequence[SocketRequest],
        stack: AsyncExitStack,
    ) -> list[socket.socket]:
        """One socket for each request, in order, or SandboxUnavailable.

        The engine removes the helper when it has ended; `stack` makes sure that it is removed.
        """
        name, root = new_name(), _root(frame)
        step = Handshake(self._parent, name, self._ready(), root)
        stack.callback(step.close)
        body = helper_body(container, step.folder, frame)
        try:
            helper = await stack.enter_async_context(self._containers.created(body, name))
            await self._containers.engine.start(helper)
            channel, _ = await step.answered(helper, root.uid, lambda: self._ended(helper))
        except EngineError as error:
            raise netns_error(f"the engine refused the helper: {error.message}") from None
        except LaunchFailed as why:
            raise netns_error(f"no helper came up: {why}") from None
        with channel:
            ask(channel, socket_requests)
            return await receive_sockets(channel, socket_requests)

    def _ready(self) -> str:
        if not os.path.exists(self._program):
            shutil.copyfile(PATH, self._program)
            os.chmod(self._program, 0o555)
        return self._program


def _root(frame: ContainerContext) -> RunAs:
    """The uid of a container's root for this process."""
    if frame.rootless:
        return RunAs(os.getuid(), os.getgid())
    with open("/proc/self/uid_map", encoding="ascii") as file:
        mapped = [line.split()[:2] for line in file]
    # In a user namespace without the machine's root that is the overflow uid.
    return RunAs(0, 0) if ["0", "0"] in mapped else RunAs(_NOBODY, _NOBODY)


def helper_body(container: str, folder: str, frame: ContainerContext) -> Body:
    """The engine's create call for the helper of `container`."""
    return {
        "Image": frame.image,
        "Entrypoint": list(ENTRY),
        "Cmd": [],
        "Env": [],
        "WorkingDir": "/",
        "User": "0:0",
        "Labels": dict(frame.labels),
        "Healthcheck": {"Test": ["NONE"]},
        "HostConfig": {
            "ReadonlyRootfs": True,
            "CapDrop": ["ALL"],
            "CapAdd": list(CAPABILITIES),
            "SecurityOpt": ["no-new-privileges"],
            "Privileged": False,
            "NetworkMode": f"container:{container}",
            "IpcMode": "private",
            "LogConfig": {"Type": "none"},
            "AutoRemove": True,
            "Init": False,
            "PidsLimit": PROCESSES,
            "Mounts": [
                {"Type": "bind", "Source": folder, "Target": INSIDE, "ReadOnly": True,
                 "BindOptions": {"Propagation": "rprivate"}},
            ],
            **({"UsernsMode": "host"} if frame.userns_host else {}),
        },
    }  # fmt: skip
