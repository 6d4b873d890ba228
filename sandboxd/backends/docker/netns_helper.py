"""Sockets in a container's network namespace, made by a second container that ends at once.

The container of a sandbox has no capabilities, from its first moment on: not even its init could
route every address to itself. So a second one joins its network (and nothing else of it), as root
and with the two capabilities that it takes, before any command runs. In it runs our helper, alone,
from a folder of its own: nothing of the image is executed, and the sandbox can never reach its
socket. It needs no privileges of the daemon beyond the engine's socket.
"""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack

from sandboxd.backends.docker.container import Frame
from sandboxd.backends.docker.dial import INSIDE, Doorstep
from sandboxd.backends.docker.engine import Body, EngineError
from sandboxd.backends.docker.lifetime import Containers, new_name
from sandboxd.linux.handed_sockets import PATH, SocketWish, ask, failed, received
from sandboxd.linux.launch import LaunchFailed
from sandboxd.policy.plan import RunAs

ENTRY = (f"{INSIDE}/netns", "--connect", f"{INSIDE}/control")
PROCESSES = 4
# To route and to add addresses; to bind ports below 1024, which not every engine lets anybody do.
CAPABILITIES = ("NET_ADMIN", "NET_BIND_SERVICE")
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
        self, container: str, frame: Frame, wishes: Sequence[SocketWish], stack: AsyncExitStack
    ) -> list[socket.socket]:
        """One for each wish, in order, or SandboxUnavailable.

        The engine removes the helper when it has ended; that it is gone is seen to by `stack`.
        """
        name, root = new_name(), _root(frame)
        step = Doorstep(self._parent, name, self._ready(), root)
        stack.callback(step.close)
        body = helper_body(container, step.folder, frame)
        try:
            helper = await stack.enter_async_context(self._containers.created(body, name))
            await self._containers.engine.start(helper)
            channel, _ = await step.answered(helper, root.uid, lambda: self._ended(helper))
        except EngineError as error:
            raise failed(f"the engine refused the helper: {error.message}") from None
        except LaunchFailed as why:
            raise failed(f"no helper came up: {why}") from None
        with channel:
            ask(channel, wishes)
            return await received(channel, wishes)

    def _ready(self) -> str:
        if not os.path.exists(self._program):
            shutil.copyfile(PATH, self._program)
            os.chmod(self._program, 0o555)
        return self._program


def _root(frame: Frame) -> RunAs:
    """Who the root of a container is for this process."""
    if frame.rootless:
        return RunAs(os.getuid(), os.getgid())
    with open("/proc/self/uid_map", encoding="ascii") as file:
        mapped = [line.split()[:2] for line in file]
    # In a user namespace without the machine's root, that is nobody.
    return RunAs(0, 0) if ["0", "0"] in mapped else RunAs(_NOBODY, _NOBODY)


def helper_body(container: str, folder: str, frame: Frame) -> Body:
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
