"""Ends of a command's pipes as overlapped handles. The sibling of the POSIX descriptors.

One read is outstanding at a time, and the next one starts when its data was taken: a command that
prints faster than it is read waits. One write is outstanding at a time for the same reason.
"""

from __future__ import annotations

import ctypes
import secrets
import sys
from collections.abc import Callable

import anyio

from sandboxd import event_loop
from sandboxd.platform.windows.loop import current_proactor
from sandboxd.windows import api
from sandboxd.windows.handles import Handle
from sandboxd.windows.processes.console import ConsoleTerminal
from sandboxd.windows.security_descriptors import private_attributes
from sandboxd.windows.structures import SECURITY_ATTRIBUTES

assert sys.platform == "win32"


READ_SIZE = 64 * 1024
LAST_BYTES_S = 1.0  # for what dead writers left in the pipe
_PIPE_BYTES = 64 * 1024
_INBOUND, _DUPLEX = 0x1, 0x3
_OVERLAPPED, _FIRST_INSTANCE = 0x40000000, 0x80000
_REJECT_REMOTE = 0x8
_GENERIC_READ, _GENERIC_WRITE, _OPEN_EXISTING = 0x80000000, 0x40000000, 3


def input_pipe() -> tuple[int, int]:
    """(ours to write, the command's to read)."""
    return _pipe(_DUPLEX, _GENERIC_READ)


def empty_input() -> int:
    """The command's end of a pipe that has no writer."""
    ours, theirs = input_pipe()
    close(ours)
    return theirs


def output_pipe() -> tuple[int, int]:
    """(ours to read, the command's to write)."""
    return _pipe(_INBOUND, _GENERIC_WRITE)


def _pipe(ours: int, theirs: int) -> tuple[int, int]:
    name = f"\\\\.\\pipe\\LOCAL\\sandboxd-{secrets.token_hex(16)}"
    with private_attributes() as attributes:
        made = api.check_handle(
            api.CreateNamedPipeW(
                name, ours | _OVERLAPPED | _FIRST_INSTANCE, _REJECT_REMOTE, 1, _PIPE_BYTES,
                _PIPE_BYTES, 0, ctypes.byref(attributes),
            ),
            "a pipe",
        )  # fmt: skip
    inherit = SECURITY_ATTRIBUTES(ctypes.sizeof(SECURITY_ATTRIBUTES), None, 1)
    try:
        child = api.check_handle(
            api.CreateFileW(name, theirs, 0, ctypes.byref(inherit), _OPEN_EXISTING, 0, None),
            "the command's end of a pipe",
        )
    except OSError:
        api.close(made)
        raise
    return made, child


_open: dict[int, ReadEnd] = {}


def close(handle: int) -> None:
    """Also where a `ReadEnd` was made of it."""
    end = _open.get(handle)
    if end is not None:
        end.close()
    else:
        api.close(handle)


# The terminals of running commands, by the handle of their output.
terminals: dict[int, ConsoleTerminal] = {}


def duplicate(handle: int) -> int:
    """Of a terminal's output: nobody but the terminal itself reads it."""
    raise OSError("the output of a terminal ends with its command on Windows")


def terminal_input(terminal: int) -> int:
    """A handle to write to, which the caller closes."""
    return terminals[terminal].input_copy()


def resize_terminal(terminal: int, rows: int, cols: int) -> None:
    terminals[terminal].resize(rows, cols)


def has_own_jobs(terminal: int) -> bool:
    """Nothing is stopped by a key on Windows."""
    return False


class ReadEnd:
    """The same object for one handle, until it is closed: it holds what was read ahead."""

    def __new__(cls, handle: int) -> ReadEnd:
        known = _open.get(handle)
        if known is None:
            known = _open[handle] = super().__new__(cls)
            known._start(handle)
        return known

    def _start(self, handle: int) -> None:
        self._handle = Handle(handle)
        self._value = handle
        self._loop = event_loop.running_loop()
        self._proactor = current_proactor()
        self._data: bytes | None = None
        self._reading: event_loop.Future[bytes] | None = None
        self._watcher: Callable[[], None] | None = None
        self._arrived = anyio.Event()
        self._ended = False
        self._read()

    def _read(self) -> None:
        if self._ended or self._reading is not None or self._data is not None:
            return
        try:
            self._reading = self._proactor.recv(self._handle, READ_SIZE)
        except OSError:
            self._take(b"")
            return
        self._reading.add_done_callback(self._finished)

    def _finished(self, reading: event_loop.Future[bytes]) -> None:
        self._reading = None
        if reading.cancelled():
            return
        try:
            data = bytes(reading.result())
        except OSError:
            data = b""
        self._take(data)

    def _take(self, data: bytes) -> None:
        self._data = data
        self._ended = self._ended or not data
        self._arrived.set()
        self._tell_soon()

    def _tell_soon(self) -> None:
        if self._watcher is not None and self._data is not None:
            self._loop.call_soon(self._tell)

    def _tell(self) -> None:
        if self._watcher is not None and self._data is not None:
            self._watcher()

    def read_now(self) -> bytes | None:
        """What is there; empty at the end, None when there is nothing yet."""
        data = self._data
        if data:
            self._data = None
            self._arrived = anyio.Event()
            self._read()
            self._tell_soon()
        return data

    def watch(self, readable: Callable[[], None]) -> None:
        """`readable` is called whenever there is something to read, until `unwatch`."""
        self._watcher = readable
        self._tell_soon()

    def unwatch(self) -> None:
        self._watcher = None

    async def readable(self) -> None:
        await self._arrived.wait()

    async def more_is_coming(self) -> bool:
        """With every writer dead: whether data is on its way that `read_now` does not see yet."""
        if self._reading is None and self._data is None:
            return False
        with anyio.move_on_after(LAST_BYTES_S):
            await self._arrived.wait()
            return True
        return False

    def close(self) -> None:
        """Closes the handle; a task that waits in `readable` goes on."""
        _open.pop(self._value, None)
        self._watcher = None
        self._ended = True
        if self._reading is not None:
            self._reading.cancel()
        self._data = b""
        self._arrived.set()
        self._handle.close()


class WriteEnd:
    """Owns the handle. It is closed when the outstanding write has ended."""

    def __init__(self, handle: int) -> None:
        self._handle = Handle(handle)
        self._writing: event_loop.Future[int] | None = None
        self._closing = False
        self._error: OSError | None = None

    def write_now(self, data: bytes | memoryview) -> int:
        """How much was taken. BlockingIOError when nothing is; OSError when the reader has gone."""
        if self._error is not None:
            raise self._error
        if self._writing is not None:
            raise BlockingIOError
        piece = bytes(data[:READ_SIZE])
        writing = current_proactor().send(self._handle, piece)
        if not writing.done():
            self._writing = writing
            writing.add_done_callback(self._written)
        else:
            writing.result()
        return len(piece)

    def _written(self, writing: event_loop.Future[int]) -> None:
        self._writing = None
        if not writing.cancelled() and isinstance(writing.exception(), OSError):
            self._error = BrokenPipeError("the command does not read any more")
        if self._closing:
            self._handle.close()

    async def writable(self) -> None:
        writing = self._writing
        if writing is not None:
            await event_loop.wait([writing])

    def close(self) -> None:
        self._closing = True
        if self._writing is None:
            self._handle.close()
