"""Accept the connection of a program in a container: a socket in a folder that is bound there.

The folder holds the program and the socket. Only the container's user can enter it and connect. The
daemon accepts one connection and removes the socket.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
from collections.abc import Awaitable, Callable

import anyio
import msgspec

from sandboxd.linux.init_client.launch import LaunchFailed
from sandboxd.linux.peercred import peer_credentials
from sandboxd.policy.plan import RunAs

INSIDE = "/.sandboxd"
ENTRY = (f"{INSIDE}/init", "--connect", f"{INSIDE}/control")
DIAL_S = 30.0
LOOK_EVERY_S = 1.0
_ID = re.compile(r"[0-9a-f]{64}")


class ContainerPeer(msgspec.Struct, frozen=True):
    """pid and uid of the peer on this machine; pid 0 if it is not visible here."""

    pid: int
    uid: int


class Handshake:
    """The folder and the socket for one container. `close` in any case.

    `program` keeps its name in the folder. `owner`: the container's user on this
    machine.
    """

    def __init__(self, parent: str, name: str, program: str, owner: RunAs) -> None:
        self.folder = os.path.join(parent, name)
        os.mkdir(self.folder, 0o700)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            os.link(program, os.path.join(self.folder, os.path.basename(program)))
            self._listen()
            self._give(owner)
        except BaseException:
            self.close()
            raise

    @property
    def _socket(self) -> str:
        return os.path.join(self.folder, "control")

    def _listen(self) -> None:
        """Through the folder's descriptor: a socket's path is limited to 107 bytes."""
        folder = os.open(self.folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._listener.bind(f"/proc/self/fd/{folder}/control")
        finally:
            os.close(folder)
        os.chmod(self._socket, 0o600)
        self._listener.listen(1)
        self._listener.setblocking(False)

    def _give(self, owner: RunAs) -> None:
        if owner.uid == os.getuid():
            return
        try:
            for path in (self._socket, self.folder):
                os.chown(path, owner.uid, owner.gid)
        except OSError:
            # Root without capabilities is an ordinary user. On this machine the private folder
            # above keeps other users out.
            os.chmod(self._socket, 0o666)
            os.chmod(self.folder, 0o711)

    async def answered(
        self, container: str, owner: int, ended: Callable[[], Awaitable[str | None]]
    ) -> tuple[socket.socket, ContainerPeer]:
        """The program's connection. LaunchFailed if `ended` returns why there will be none."""
        deadline = anyio.current_time() + DIAL_S
        while anyio.current_time() < deadline:
            with anyio.move_on_after(LOOK_EVERY_S):
                await anyio.wait_readable(self._listener)
                connection, _ = self._listener.accept()
                try:
                    peer = _checked(connection, container, owner)
                except BaseException:
                    connection.close()
                    raise
                connection.setblocking(False)
                os.unlink(self._socket)
                return connection, peer
            why = await ended()
            if why is not None:
                raise LaunchFailed(why)
        raise LaunchFailed(f"no connection from the container in {DIAL_S:g} s")

    def close(self) -> None:
        self._listener.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def _checked(connection: socket.socket, container: str, owner: int) -> ContainerPeer:
    pid, uid, _ = peer_credentials(connection)
    named = set(_ID.findall(cgroups_of(pid)))
    if uid != owner or (named and container not in named):
        raise LaunchFailed(f"process {pid} of uid {uid} connected, which is not the container's")
    return ContainerPeer(pid, uid)


def cgroups_of(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cgroup", encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
