"""The daemon's named pipe: one daemon for each name, many instances that wait for clients.

Enough instances wait at any time: a client that finds none is told that no daemon is there.
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
import re
import sys
from typing import Any

import anyio

from sandboxd import event_loop
from sandboxd.platform.windows.loop import current_proactor
from sandboxd.rpc.peer_auth import windows as peers
from sandboxd.rpc.transport.interface import ListenError
from sandboxd.rpc.transport.pipe import PipeChannel
from sandboxd.windows import api
from sandboxd.windows.access_lists.mutex import NamedMutex
from sandboxd.windows.handles import Handle
from sandboxd.windows.security_descriptors import private_attributes
from sandboxd_proto.errors import Unauthorized

assert sys.platform == "win32"

log = logging.getLogger(__name__)
INSTANCES = 16  # that wait; with one, some of fifty clients found none
_MOST_INSTANCES = 255
_BUFFER = 64 * 1024
_DUPLEX, _OVERLAPPED, _FIRST_INSTANCE, _REJECT_REMOTE = 0x3, 0x40000000, 0x80000, 0x8
_NAME = re.compile(r"\\\\\.\\pipe\\[^\\/:*?\"<>|]{1,200}")


class AcceptedPipe:
    """The peer is known when its first bytes have been read, not before."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self.pid = peers.pid_of(handle.fileno())

    def identify(self) -> None:
        """Does nothing: Windows identifies a client only after it has sent something."""

    def transport(self) -> PipeChannel:
        return PipeChannel(self._handle)

    def refusal(self) -> Unauthorized | None:
        return peers.refusal(self._handle.fileno())

    def close(self) -> None:
        self._handle.close()


class PipeListener:
    """`close` gives the name up."""

    made_here = True

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            self._mutex = NamedMutex(f"Local\\sandboxd-serves-{_digest(path)}")
        except OSError as error:
            raise ListenError(f"cannot listen on {path}: {error.strerror}") from None
        if not self._mutex.acquire(wait_s=0):
            self._mutex.close()
            raise ListenError(f"another sandboxd listens on {path} already")
        self._waiting: dict[event_loop.Future[Any], Handle] = {}
        try:
            self._first: Handle | None = self._instance(first=True)
        except OSError as error:
            self._mutex.close()
            raise ListenError(f"cannot listen on {path}: {error.strerror}") from None

    def _instance(self, *, first: bool = False) -> Handle:
        access = _DUPLEX | _OVERLAPPED | (_FIRST_INSTANCE if first else 0)
        with private_attributes() as attributes:
            made = api.CreateNamedPipeW(
                self.path, access, _REJECT_REMOTE, _MOST_INSTANCES, _BUFFER, _BUFFER, 0,
                ctypes.byref(attributes),
            )  # fmt: skip
        return Handle(api.check_handle(made, self.path))

    async def accept(self, *, allow_other_namespaces: bool) -> AcceptedPipe:
        while True:
            self._fill()
            if not self._waiting:
                await anyio.sleep(0.1)
                continue
            done, _ = await event_loop.wait(self._waiting, return_when="FIRST_COMPLETED")
            future = done.pop()
            handle = self._waiting.pop(future)
            self._fill()  # before this one is handed over
            if future.cancelled() or future.exception() is not None:
                handle.close()
                continue
            return AcceptedPipe(handle)

    def _fill(self) -> None:
        """Make waiting instances. One whose client left before it was waited on is replaced."""
        spent: list[Handle] = []  # closed last: the name vanishes with its last instance
        try:
            for _ in range(2 * INSTANCES):
                if len(self._waiting) >= INSTANCES:
                    break
                handle, self._first = self._first or self._instance(), None
                try:
                    waiting = current_proactor().accept_pipe(handle)
                    self._waiting[waiting] = handle
                except OSError:
                    spent.append(handle)
        except OSError as error:
            log.warning("cannot make another instance of the pipe: %s", error.strerror)
        for handle in spent:
            handle.close()

    def close(self) -> None:
        for future, handle in self._waiting.items():
            if not future.get_loop().is_closed():
                future.cancel()
            handle.close()
        self._waiting.clear()
        if self._first is not None:
            self._first.close()
        self._mutex.close()


def _digest(path: str) -> str:
    return hashlib.sha256(path.lower().encode()).hexdigest()[:32]


def listen(path: str) -> PipeListener:
    if not _NAME.fullmatch(path):
        raise ListenError(f"{path} is no local pipe: give \\\\.\\pipe\\NAME")
    return PipeListener(path)
