"""Measure side by side: rows take turns in one run, so that noise of the machine hits all alike.

A row is a name and something to do once. Numbers of different runs, or of rows measured one after
the other, do not compare on a shared machine; ratios within one table do.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

Work = Callable[[], object]

# Background work of a row (a sandbox made ready for the next command) must not slow the row that
# comes after it.
SETTLE_S = 0.04
PACE_S = 0.02  # from the start of one sample to the start of the next, within a row's turn
TURN = 5  # samples that a row takes before the next row has its turn
PATIENCE = 20  # how often a sample is taken again before the disturbance counts as an error


class Disturbed(Exception):
    """Something else on this machine ended what was being measured: the sample is taken again."""


@dataclass(frozen=True, slots=True)
class Row:
    """`once` is what is timed. `worker` makes the same work for one of several clients at once."""

    name: str
    once: Work
    worker: Callable[[], Work] | None = None


@dataclass(slots=True)
class Measured:
    name: str
    samples_ms: list[float] = field(default_factory=list)

    def percentile(self, percent: float) -> float:
        ordered = sorted(self.samples_ms)
        return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]

    @property
    def p50(self) -> float:
        return self.percentile(50)

    @property
    def p95(self) -> float:
        return self.percentile(95)


def latency(
    rows: Sequence[Row], *, rounds: int, warm_up: int = 3, turn: int = TURN, pace_s: float = PACE_S
) -> list[Measured]:
    """`turn` samples of every row a round, each round beginning with another row."""
    measured = [Measured(row.name) for row in rows]
    for row in rows:
        for _ in range(warm_up):
            timed_ms(row.once)
            time.sleep(SETTLE_S)
    for number in range(rounds):
        for step in range(len(rows)):
            index = (number + step) % len(rows)
            time.sleep(max(SETTLE_S, pace_s))
            measured[index].samples_ms += _turn(rows[index].once, turn, pace_s)
    return measured


def _turn(work: Work, count: int, pace_s: float) -> list[float]:
    samples: list[float] = []
    for number in range(count):
        took_ms = timed_ms(work)
        samples.append(took_ms)
        if number + 1 < count:
            time.sleep(max(0.0, pace_s - took_ms / 1000))
    return samples


def rates(rows: Sequence[Row], *, clients: int, seconds: float, turns: int = 4) -> list[float]:
    """How often a second each row's work is done by `clients` threads at once, in turns."""
    works = [[_worker(row) for _ in range(clients)] for row in rows]
    done = [0] * len(rows)
    took = [0.0] * len(rows)
    for number in range(turns):
        for step in range(len(rows)):
            index = (number + step) % len(rows)
            time.sleep(SETTLE_S)
            count, elapsed = _for_a_while(works[index], seconds / turns)
            done[index] += count
            took[index] += elapsed
    return [count / elapsed for count, elapsed in zip(done, took, strict=True)]


def _worker(row: Row) -> Work:
    return row.worker() if row.worker is not None else row.once


def _for_a_while(works: Sequence[Work], seconds: float) -> tuple[int, float]:
    """(how many were finished, how long it took): every client ends the one that it is at."""
    ready = threading.Barrier(len(works) + 1)
    counts = [0] * len(works)
    failures: list[BaseException] = []

    def client(number: int, work: Work) -> None:
        ready.wait()
        until = time.perf_counter() + seconds
        try:
            while time.perf_counter() < until:
                timed_ms(work)
                counts[number] += 1
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=client, args=each) for each in enumerate(works)]
    for thread in threads:
        thread.start()
    ready.wait()
    began = time.perf_counter()
    for thread in threads:
        thread.join()
    elapsed = time.perf_counter() - began
    if failures:
        raise failures[0]
    return sum(counts), elapsed


def timed_ms(work: Work) -> float:
    tries = 0
    while True:
        began = time.perf_counter()
        try:
            work()
        except Disturbed:
            tries += 1
            if tries == PATIENCE:
                raise
            time.sleep(SETTLE_S)
        else:
            return (time.perf_counter() - began) * 1000
