"""Base of relays between two descriptors: waits for one of them at a time, and never spins.

The other side of a descriptor can make it count as ready while no byte can be moved: a command that
changes the size of its pipe, a peer that sends urgent data. So a descriptor that was ready several
times for nothing is looked at again after a pause only.
"""

from __future__ import annotations

from sandboxd import event_loop

IDLE_TURNS = 4  # one or two are races with the other side
PAUSE_S = 0.01
TURN_BYTES = 1 << 20  # in one callback


class PacedRelay:
    """`_moved`: how many bytes were moved so far, counted by `_step`."""

    def __init__(self, source: int, target: int) -> None:
        self._source, self._target = source, target
        self._moved = 0
        self._reading = self._writing = False
        self._watches_source = self._watches_target = False
        self._idle_turns = 0
        self._pause: event_loop.Timer | None = None

    def _step(self) -> bool:
        """Move some bytes. False when there is something to wait for, or nothing left."""
        raise NotImplementedError

    def _fail(self) -> None:
        raise NotImplementedError

    def _turn(self) -> None:
        """Move what can be moved, at most a bounded number of bytes."""
        until = self._moved + TURN_BYTES
        try:
            while self._moved < until and self._step():
                pass
        except Exception as error:
            if not isinstance(error, OSError):
                event_loop.log_failure("a passed stream failed", error)
            self._fail()

    def _watch(self, *, reading: bool = False, writing: bool = False) -> None:
        """What to wait for from now on."""
        self._reading, self._writing = reading, writing
        if self._pause is not None and not (reading or writing):
            self._pause.cancel()
            self._pause = None
        if self._pause is None:
            self._register(reading, writing)

    def _register(self, reading: bool, writing: bool) -> None:
        if reading != self._watches_source:
            self._watches_source = reading
            if reading:
                event_loop.add_reader(self._source, self._ready)
            else:
                event_loop.remove_reader(self._source)
        if writing != self._watches_target:
            self._watches_target = writing
            if writing:
                event_loop.add_writer(self._target, self._ready)
            else:
                event_loop.remove_writer(self._target)

    def _ready(self) -> None:
        before = self._moved
        self._turn()
        self._idle_turns = 0 if self._moved > before else self._idle_turns + 1
        if self._idle_turns >= IDLE_TURNS and (self._reading or self._writing):
            self._register(False, False)
            self._pause = event_loop.call_later(PAUSE_S, self._end_pause)

    def _end_pause(self) -> None:
        self._pause = None
        self._register(self._reading, self._writing)
