"""Who runs below whom, read from /proc. A process is named by pid *and* start time: pids recur."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Process:
    pid: int
    started: int
    parent: int
    state: str
    name: str

    @property
    def alive(self) -> bool:
        """It still runs. A zombie does not: it only waits for its parent to ask."""
        now = process(self.pid)
        return now is not None and now.started == self.started and now.state not in "ZX"


def process(pid: int) -> Process | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name stands in parentheses and may hold blanks and parentheses itself.
    head, _, tail = text.rpartition(")")
    fields = tail.split()
    return Process(
        pid=pid,
        started=int(fields[19]),
        parent=int(fields[1]),
        state=fields[0],
        name=head.partition("(")[2],
    )


def processes() -> list[Process]:
    pids = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return [found for pid in pids if (found := process(pid)) is not None]


def processes_below(pid: int) -> list[Process]:
    """Every living descendant of `pid`, without itself."""
    everyone = processes()
    below = {pid}
    found: list[Process] = []
    grown = True
    while grown:
        new = [p for p in everyone if p.parent in below and p.pid not in below]
        found += new
        below |= {p.pid for p in new}
        grown = bool(new)
    return [p for p in found if p.state not in "ZX"]


def survivors(watched: Iterable[Process], *, within_s: float = 10.0) -> list[Process]:
    """Those of `watched` that still run after waiting for their end."""
    left = [p for p in watched if p.alive]
    deadline = time.monotonic() + within_s
    while left and time.monotonic() < deadline:
        time.sleep(0.02)
        left = [p for p in left if p.alive]
    return left
