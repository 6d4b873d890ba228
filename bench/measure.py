"""Measuring side by side: rows take turns in one run, so that the machine's moods hit them alike.

A row is a name and something to do once. Numbers of different runs, or of rows measured one after
the other, do not compare on a shared machine; ratios within one table do.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

Work = Callable[[], object]


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
    per_second: float | None = None

    def percentile(self, percent: float) -> float:
        ordered = sorted(self.samples_ms)
        return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


# What a row does off its own path (a sandbox made ready for the next command) must not be paid
# for by the row that happens to come after it.
SETTLE_S = 0.04


def latency(rows: Sequence[Row], *, rounds: int, warm_up: int = 3) -> list[Measured]:
    """Every row once a round, each round beginning with another row."""
    measured = [Measured(row.name) for row in rows]
    for row in rows:
        for _ in range(warm_up):
            row.once()
    for number in range(rounds):
        for step in range(len(rows)):
            index = (number + step) % len(rows)
            time.sleep(SETTLE_S)
            measured[index].samples_ms.append(_timed_ms(rows[index].once))
    return measured


def throughput(
    rows: Sequence[Row], measured: Sequence[Measured], *, clients: int, each: int
) -> None:
    """Fill in `per_second`: `clients` threads, each doing its row's work `each` times, in turns."""
    turns = 4
    for row, result in zip(rows, measured, strict=True):
        result.per_second = 0.0 if row.worker else None
    works = {row.name: [row.worker() for _ in range(clients)] for row in rows if row.worker}
    for _ in range(turns):
        for row, result in zip(rows, measured, strict=True):
            if result.per_second is not None:
                result.per_second += _rate(works[row.name], max(1, each // turns)) / turns


def _rate(works: Sequence[Work], each: int) -> float:
    ready = threading.Barrier(len(works) + 1)
    failures: list[BaseException] = []

    def client(work: Work) -> None:
        ready.wait()
        try:
            for _ in range(each):
                work()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=client, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    ready.wait()
    began = time.perf_counter()
    for thread in threads:
        thread.join()
    took = time.perf_counter() - began
    if failures:
        raise failures[0]
    return len(works) * each / took


def _timed_ms(work: Work) -> float:
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1000


def table(measured: Sequence[Measured], *, reference: str, clients: int) -> str:
    """One line a row; the ratios are against `reference` (its p50, its rate)."""
    base = next(m for m in measured if m.name == reference)
    head = ("", "p50 ms", "p95 ms", "x p50", f"{clients} clients /s", "x rate")
    lines = [head, *(_cells(m, base) for m in measured)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    )


def _cells(row: Measured, base: Measured) -> tuple[str, ...]:
    p50, p95 = row.percentile(50), row.percentile(95)
    rate, ratio = "-", "-"
    if row.per_second is not None:
        rate = f"{row.per_second:.0f}"
        if base.per_second:
            ratio = f"{row.per_second / base.per_second:.2f}"
    return (row.name, f"{p50:.2f}", f"{p95:.2f}", f"{p50 / base.percentile(50):.2f}", rate, ratio)
