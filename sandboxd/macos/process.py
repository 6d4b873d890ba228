"""One running command: start, watch, signal and end it, with all processes of its tree."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import anyio
import msgspec

from sandboxd.event_loop import Future, running_loop, shield
from sandboxd.macos import status
from sandboxd.macos.limit_watch import LimitWatch
from sandboxd.macos.spawn import Spawned
from sandboxd.macos.tree import Tree
from sandboxd.posix.reaper import ChildExit
from sandboxd.types import Command, Evidence, ExitReport, TreeUsage
from sandboxd_proto.errors import ExecFailed, SandboxdError, SandboxUnavailable

assert sys.platform != "win32"

log = logging.getLogger(__name__)
START_S = 20.0
BACKGROUND_LOOK_S = 0.05
MOST_EARLY = 16
_RSS_UNIT = 1 if sys.platform == "darwin" else 1024
EndLater = Callable[[Callable[[], Coroutine[Any, Any, None]]], None]


class Around(msgspec.Struct, frozen=True):
    """What a process needs of the backend.

    `gone` is called once, when nothing of the tree is alive, `closed` when it is not used any more.
    `end_later` ends a tree in a task of the backend's. `evidence` asks what the kernel's log says
    about it. `diagnose` explains what sandbox-exec printed when no sandbox came up.
    """

    gone: Callable[[], None]
    closed: Callable[[], None]
    end_later: EndLater
    evidence: Callable[[bool], Awaitable[Evidence]]
    diagnose: Callable[[str], SandboxUnavailable]


class SandboxExecProcess:
    """`ended` is the reaper's: it is done when the first process has ended."""

    filter_loaded = False

    def __init__(
        self, command: Command, spawned: Spawned, tree: Tree, ended: Future[ChildExit],
        around: Around, pty: int | None,
    ) -> None:  # fmt: skip
        self.pty = pty
        self._command = command
        self._tree = tree
        self._ended = ended
        self._around = around
        self._loop = running_loop()
        self._status = spawned.status
        self._said = bytearray()
        self._started = anyio.Event()
        self._error: SandboxdError | None = None
        self._early_signals: list[int] = []
        self._killed = False
        self._gone = False
        self._watch = LimitWatch(tree, command.limits, self.kill)
        self._loop.add_reader(self._status, self._read_status)
        self._patience = self._loop.call_later(START_S, self._give_up)
        ended.add_done_callback(self._first_process_ended)

    # how far it came

    def _read_status(self) -> None:
        try:
            data = os.read(self._status, status.MOST_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._said += data[: max(0, status.MOST_BYTES - len(self._said))]
        if not data:
            self._conclude_start()

    def _conclude_start(self) -> None:
        if self._status < 0:
            return
        self._stop_reading()
        said = status.decode(bytes(self._said))
        if said.failed is not None:
            self._error = status.exec_error(self._command, *said.failed)
        elif not said.started and self._killed:
            self._error = ExecFailed("the command was ended before it had started")
        elif not said.started:
            self._error = self._around.diagnose(said.text)
        else:
            self._watch.start()
            for number in self._early_signals:
                self._send(number)
        self._started.set()

    def _give_up(self) -> None:
        """sandbox-exec neither ended nor executed the launcher."""
        if self._status >= 0:
            self._stop_reading()
            self._error = SandboxUnavailable(
                f"sandbox-exec did not start the command within {START_S:g} s",
                remedy="run `sandboxctl doctor`",
            )
            self.kill()
            self._started.set()

    def _stop_reading(self) -> None:
        self._patience.cancel()
        if self._status >= 0:
            self._loop.remove_reader(self._status)
            os.close(self._status)
            self._status = -1

    async def started(self) -> None:
        await self._started.wait()
        if self._error is not None:
            raise self._error

    # its end

    def _first_process_ended(self, _: object) -> None:
        if self._command.keep_background:
            return
        self._watch.stop()
        self._tree.end_once(group=False)

    async def wait(self, *, tree: bool = True) -> ExitReport:
        await self.started()
        ended = await shield(self._ended)
        if tree:
            await self._until_gone()
        code = os.waitstatus_to_exitcode(ended.status)
        cpu_ms = (ended.usage.ru_utime + ended.usage.ru_stime) * 1000
        return ExitReport(
            exit_code=code if code >= 0 else None,
            signal=-code if code < 0 else None,
            usage=TreeUsage(
                max(cpu_ms, self._watch.most.cpu_s * 1000),
                max(ended.usage.ru_maxrss * _RSS_UNIT, self._watch.most.memory_bytes),
            ),
            limit=self._watch.exceeded,
            evidence=await self._around.evidence(code != 0),
        )

    async def _until_gone(self) -> None:
        while True:
            if not self._command.keep_background or self._killed or not self._tree.members():
                break
            await anyio.sleep(BACKGROUND_LOOK_S)
        if not self._gone and await self._tree.end():
            self._mark_gone()

    def _mark_gone(self) -> None:
        if not self._gone:
            self._gone = True
            self._watch.stop()
            self._around.gone()

    # what it is told

    def signal(self, number: int, *, whole_tree: bool = False) -> None:
        """Before the exec it would hit the launcher; it is delivered when the command runs."""
        if not self._started.is_set() and not whole_tree:
            self._early_signals[MOST_EARLY:] = []
            self._early_signals.append(number)
        elif whole_tree:
            self._tree.signal(number)
        else:
            self._send(number)

    def _send(self, number: int) -> None:
        if not self._ended.done():
            self._tree.send(self._tree.leader, number)

    def kill(self) -> None:
        self._killed = True
        self._tree.end_once(group=not self._ended.done())

    def members(self) -> list[int]:
        """The processes of its tree that are alive."""
        return self._tree.members()

    async def end(self) -> None:
        """For the sandbox's own end: nothing of it is alive afterwards."""
        self.kill()
        await shield(self._ended)
        await self._until_gone()

    def close(self) -> None:
        self._stop_reading()
        self._around.closed()
        self._started.set()
        self._watch.stop()
        if self.pty is not None:
            anyio.notify_closing(self.pty)
            os.close(self.pty)
            self.pty = None
        if not self._gone:
            self.kill()
            self._around.end_later(self.end)
