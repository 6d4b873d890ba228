"""A pseudo console (ConPTY): the terminal of a command, and the order in which it is closed.

Pure: the calls are given. Whether a pseudo console works inside an AppContainer has been seen on no
machine: `VERIFIED` is the one switch, and it stays off until a real Windows has shown it.

The console's program writes until the console is closed, so the end of a command is not the end of
its output: the console is closed when the tree is dead, in a thread of its own, since that call
waits until the output was read.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Protocol

from sandboxd_proto.errors import PolicyNotSupported

VERIFIED = False
REFUSAL = "terminals are not supported on Windows yet: they were not verified on a real machine"
MOST = 32767  # rows or columns: a COORD has 16 bits, one of them the sign


class ConsoleApi(Protocol):
    """What a terminal needs of the system. OSError for each call that fails."""

    def input_pipe(self) -> tuple[int, int]:
        """(ours to write, the console's to read)."""

    def output_pipe(self) -> tuple[int, int]:
        """(ours to read, the console's to write)."""

    def create(self, rows: int, cols: int, source: int, target: int) -> int:
        """The console. It has copies of both handles."""

    def resize(self, console: int, rows: int, cols: int) -> None: ...
    def close_console(self, console: int) -> None:
        """Waits until its output was read or nobody can read it. Its clients are ended."""

    def close(self, handle: int) -> None: ...
    def duplicate(self, handle: int) -> int: ...
    def in_thread(self, work: Callable[[], None]) -> None: ...


class ConsoleTerminal:
    """Made before its process; `attached` after that, `end` when the tree is dead, then `close`."""

    def __init__(self, api: ConsoleApi, rows: int, cols: int) -> None:
        check_size(rows, cols)
        self._api = api
        with ExitStack() as made:
            self.input, source = api.input_pipe()
            made.callback(api.close, self.input)
            made.callback(api.close, source)
            self.output, target = api.output_pipe()
            made.callback(api.close, self.output)
            made.callback(api.close, target)
            self.console = api.create(rows, cols, source, target)
            made.pop_all()
        self._theirs = [source, target]
        self._ended = self._closed = False

    def attached(self) -> None:
        """The process was made, or could not be: the console's own copies are enough."""
        while self._theirs:
            self._api.close(self._theirs.pop())

    def input_copy(self) -> int:
        """For one who writes and closes it."""
        return self._api.duplicate(self.input)

    def resize(self, rows: int, cols: int) -> None:
        check_size(rows, cols)
        if self._ended:
            return
        try:
            self._api.resize(self.console, rows, cols)
        except OSError as error:
            raise PolicyNotSupported(
                f"this Windows does not resize a terminal: {error}", field="rows",
                remedy="start the command with the size that it needs",
            ) from None  # fmt: skip

    def end(self) -> None:
        """The output ends when what is in it was read. Returns at once."""
        self.attached()
        if not self._ended:
            self._ended = True
            self._api.in_thread(lambda: self._api.close_console(self.console))

    def close(self) -> None:
        """Our ends go last: closing the output lets a console end whose output nobody reads."""
        self.end()
        if not self._closed:
            self._closed = True
            self._api.close(self.input)
            self._api.close(self.output)


def check_size(rows: int, cols: int) -> None:
    for name, value in (("rows", rows), ("cols", cols)):
        if not 0 < value <= MOST:
            raise PolicyNotSupported(
                f"a terminal of Windows has at most {MOST} {name}, not {value}",
                field=f"pty.{name}",
                remedy="ask for a smaller one",
            )


def refuse_terminal() -> PolicyNotSupported:
    return PolicyNotSupported(REFUSAL, field="pty", remedy="run the command without a pty")
