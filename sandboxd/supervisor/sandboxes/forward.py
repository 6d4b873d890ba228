"""Forward a socket of the host to a server inside a sandbox.

Each connection to the endpoint becomes one to the port on the sandbox's own loopback, made by a
process of the sandbox and handed to the daemon.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
import time
from contextlib import suppress
from functools import partial
from typing import Literal

import anyio

from sandboxd.egress.splice import Activity, both, pump
from sandboxd.supervisor.sandboxes.files import SandboxFiles
from sandboxd_proto.errors import InvalidParams, SandboxdError

MOST_CONNECTIONS = 256
MOST_IN_ALL = 1024
MOST_PATH_BYTES = 103 if sys.platform == "darwin" else 107  # of a Unix socket
Listen = Literal["unix", "tcp"]


class ConnectionBudget:
    """Of all forwards together: every user of the machine can connect to a port, and each
    connection takes two descriptors of the daemon."""

    def __init__(self, most: int = MOST_IN_ALL) -> None:
        self._left = most

    def take(self) -> bool:
        if self._left == 0:
            return False
        self._left -= 1
        return True

    def give_back(self) -> None:
        self._left += 1


class Forward:
    """Made with its endpoint listening; `serve` runs until `close`."""

    def __init__(
        self, files: SandboxFiles, port: int, listen: Listen, folder: str,
        budget: ConnectionBudget,
    ) -> None:  # fmt: skip
        if not 0 < port <= 65535:
            raise InvalidParams("a port is 1 to 65535", field="port")
        self.id = f"fw-{os.urandom(8).hex()}"
        self.port = port
        self._files = files
        self._budget = budget
        self._path: str | None = None
        self._scope = anyio.CancelScope()
        self._clients: set[socket.socket] = set()
        self._last_used = time.monotonic()
        if listen == "unix":
            self._path = os.path.join(folder, f"{self.id}.sock")
            self._server = _unix_server(self._path)
            self.endpoint = self._path
        else:
            self._server = socket.create_server(("127.0.0.1", 0))
            self.endpoint = f"127.0.0.1:{self._server.getsockname()[1]}"
        self._server.setblocking(False)

    def used_at(self, now: float) -> float:
        """`now` while a connection is open."""
        return now if self._clients else self._last_used

    async def serve(self) -> None:
        try:
            with self._scope:
                async with anyio.create_task_group() as tasks:
                    while True:
                        client = await self._accept()
                        if len(self._clients) >= MOST_CONNECTIONS or not self._budget.take():
                            _reset(client)
                            continue
                        self._clients.add(client)
                        self._last_used = time.monotonic()
                        tasks.start_soon(self._connect, client)
        finally:
            self.close()
            for client in list(self._clients):  # their tasks were cancelled before they began
                self._end(client)

    async def _accept(self) -> socket.socket:
        while True:
            try:
                client, _ = self._server.accept()
            except BlockingIOError:
                await anyio.wait_readable(self._server)
                continue
            except OSError:
                await anyio.sleep(0.1)  # no descriptors left, or a client that left again
                continue
            client.setblocking(False)
            return client

    async def _connect(self, client: socket.socket) -> None:
        """Connect to the port. If nothing listens there, the connection ends at once."""
        try:
            inner = await self._files.connect(self.port)
        except (SandboxdError, OSError):
            _reset(client)
        else:
            activity = Activity()
            with inner, suppress(OSError):
                await both(
                    partial(pump, client, inner, _count, activity),
                    partial(pump, inner, client, _count, activity),
                )
        finally:
            self._end(client)

    def _end(self, client: socket.socket) -> None:
        client.close()
        self._clients.discard(client)
        self._budget.give_back()
        self._last_used = time.monotonic()

    def close(self) -> None:
        """Remove the endpoint; open connections end a moment later."""
        self._scope.cancel()
        if self._server.fileno() >= 0:
            anyio.notify_closing(self._server)
            self._server.close()
        if self._path is not None:
            with suppress(OSError):
                os.unlink(self._path)


def _unix_server(path: str) -> socket.socket:
    if sys.platform == "win32":
        raise InvalidParams("there are no Unix sockets on Windows: use tcp", field="listen")
    if len(os.fsencode(path)) > MOST_PATH_BYTES:
        raise InvalidParams(
            f"the path of a socket of this daemon would be too long: {path}",
            field="listen",
            remedy="listen on tcp, or give the daemon a socket with a shorter path",
        )
    server = socket.socket(socket.AF_UNIX)
    try:
        server.bind(path)
        os.chmod(path, 0o600)  # nothing connects before it listens
        server.listen(64)
    except OSError:
        server.close()
        raise
    return server


def _reset(client: socket.socket) -> None:
    """Close with RST, as a port without a listener does."""
    with suppress(OSError):
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


def _count(size: int) -> None:
    """Bytes of a forwarded connection are not counted."""
