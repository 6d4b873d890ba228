"""The output of a detached execution: the end of each stream, for clients that attach later.

It is the execution's listener, and never waits. Readers pull (`next_event`), each at its own pace;
pieces that were dropped before a reader reached them are skipped, and the reader is told of the
gap.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

import anyio

from sandboxd_proto.denial import Denial
from sandboxd_proto.messages import notifications as notes
from sandboxd_proto.messages.execute import Encoding, ExecuteResult, Outcome, StreamName

STREAM_BYTES = 1 << 20
# Small pieces cost more than their text: their number is bounded too.
STREAM_PIECES = 16384
DENIALS = 256
LogEvent = notes.Started | notes.Output | notes.DenialSeen | notes.Exited | notes.Progress


class _Numbers:
    """The numbers of events that are in memory, in order. Old ones are taken from the front."""

    def __init__(self) -> None:
        self._all: list[int] = []
        self._start = 0

    def __len__(self) -> int:
        return len(self._all) - self._start

    def append(self, number: int) -> None:
        self._all.append(number)

    def pop_first(self) -> int:
        number = self._all[self._start]
        self._start += 1
        if self._start > STREAM_PIECES:
            del self._all[: self._start]
            self._start = 0
        return number

    def first_from(self, number: int) -> int | None:
        at = bisect_left(self._all, number, self._start)
        return self._all[at] if at < len(self._all) else None


@dataclass(slots=True)
class _Kept:
    """The pieces of one stream that are in memory."""

    numbers: _Numbers = field(default_factory=_Numbers)
    bytes: int = 0
    next_seq: int = 0
    first_seq: int = 0


class OutputLog:
    def __init__(self) -> None:
        self._events: dict[int, LogEvent] = {}
        self._next = 0
        self._denials = 0
        self._progress = _Numbers()
        self._others = _Numbers()  # of everything but output and progress
        self._streams: dict[StreamName, _Kept] = {"stdout": _Kept(), "stderr": _Kept()}
        self._changed = anyio.Event()
        self.ended = False

    # as the execution's listener

    def next_attempt(self) -> OutputLog:
        """The command runs again after a denial was approved; its output follows."""
        self.ended = False
        return self

    def progress(self, execution_id: str, phase: str, done: int, total: int | None) -> None:
        """Only the last report is kept."""
        while len(self._progress):
            del self._events[self._progress.pop_first()]
        made = notes.Progress(execution_id=execution_id, phase=phase, done=done, total=total)
        self._add(made, self._progress)

    async def started(self, execution_id: str, backend: str) -> None:
        self._add(notes.Started(execution_id=execution_id, backend=backend), self._others)

    async def output(
        self, execution_id: str, stream: StreamName, seq: int, data: str, encoding: Encoding
    ) -> None:
        kept = self._streams[stream]
        kept.bytes += len(data)
        kept.next_seq = seq + 1
        self._add(
            notes.Output(
                execution_id=execution_id, stream=stream, seq=seq, data=data, encoding=encoding
            ),
            kept.numbers,
        )
        while len(kept.numbers) > 1 and (
            kept.bytes > STREAM_BYTES or len(kept.numbers) > STREAM_PIECES
        ):
            dropped = self._events.pop(kept.numbers.pop_first())
            assert isinstance(dropped, notes.Output)
            kept.bytes -= len(dropped.data)
            kept.first_seq = dropped.seq + 1

    async def denial(self, execution_id: str, denial: Denial) -> None:
        if self._denials < DENIALS:
            self._denials += 1
            self._add(notes.DenialSeen(execution_id=execution_id, denial=denial), self._others)

    async def exited(
        self, execution_id: str, outcome: Outcome, exit_code: int | None, signal: int | None
    ) -> None:
        self._add(
            notes.Exited(
                execution_id=execution_id, outcome=outcome, exit_code=exit_code, signal=signal
            ),
            self._others,
        )
        self._end()

    def conclude(self, result: ExecuteResult | None) -> None:
        """End the log. An execution that was cancelled before it ran has a result, too."""
        if self.ended:
            return
        if result is not None:
            exited = notes.Exited(
                execution_id=result.execution_id, outcome=result.outcome,
                exit_code=result.exit_code, signal=result.signal,
            )  # fmt: skip
            self._add(exited, self._others)
        self._end()

    def _end(self) -> None:
        self.ended = True
        self._wake()

    def _add(self, event: LogEvent, numbers: _Numbers) -> None:
        numbers.append(self._next)
        self._events[self._next] = event
        self._next += 1
        self._wake()

    def _wake(self) -> None:
        changed, self._changed = self._changed, anyio.Event()
        changed.set()

    # for readers

    @property
    def kept_bytes(self) -> int:
        return sum(kept.bytes for kept in self._streams.values())

    def next_seq(self, stream: StreamName) -> int:
        return self._streams[stream].next_seq

    def lacks(self, stream: StreamName, after: int) -> bool:
        """Whether a piece after number `after` (-1: all) is no longer in memory."""
        return after + 1 < self._streams[stream].first_seq

    async def next_event(self, number: int) -> tuple[int, LogEvent] | None:
        """The first event at or after `number`, and its number; None when there will be none."""
        while True:
            kept = (*(one.numbers for one in self._streams.values()), self._others, self._progress)
            numbers = [one.first_from(number) for one in kept]
            first = min((one for one in numbers if one is not None), default=None)
            if first is not None:
                return first, self._events[first]
            if self.ended:
                return None
            await self._changed.wait()
