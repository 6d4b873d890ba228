"""What waiting costs: an idle daemon, and a sandbox that waits for its command.

PSS counts a page that several processes share by each one's part. Only root may ask for that of a
process that is not dumpable, so others get RSS, which counts shared pages in full.
"""

from __future__ import annotations

import os
import re
import threading
import time
from pathlib import Path

from support.daemon import Daemon, running_daemon

from bench import rows_daemon
from bench.lines import Line, Section, Target
from bench.place import Place

DAEMON_MB, SANDBOX_MB = 45.0, 0.5
BURST = 8
SETTLE_S = 1.5
KIND = "PSS" if os.geteuid() == 0 else "RSS"


def measured(place: Place) -> Section:
    with running_daemon() as daemon:
        fresh = kib_of(daemon.pid)
        warm_kib, warm = _warm(daemon, place)
        used = kib_of(daemon.pid)
    after = kib_of(place.warm.pid)
    return Section(
        f"Memory ({KIND})",
        (
            Line("idle daemon, just started", _mb(fresh), targets=_at_most(DAEMON_MB, fresh)),
            Line(f"idle daemon, after {BURST} clients", _mb(used),
                 targets=_at_most(DAEMON_MB, used)),
            Line("idle daemon, after this whole bench", _mb(after),
                 targets=_at_most(DAEMON_MB, after)),
            Line(f"warm sandbox, bwrap and init, of {warm} waiting", _mb(warm_kib / warm),
                 targets=_at_most(SANDBOX_MB, warm_kib / warm)),
        ),
    )  # fmt: skip


def _warm(daemon: Daemon, place: Place) -> tuple[int, int]:
    """(memory of everything below the daemon, how many sandboxes wait there)."""
    with rows_daemon.execute("", daemon, place.policy) as row:
        assert row.worker is not None
        works = [row.worker() for _ in range(BURST)]
        for _ in range(3):
            threads = [threading.Thread(target=work) for work in works]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    time.sleep(SETTLE_S)
    below = daemon.descendants()
    # Of the processes of one sandbox exactly one is a child of the daemon.
    waiting = sum(1 for process in below if process.parent == daemon.pid)
    return sum(kib_of(process.pid) for process in below), max(1, waiting)


def kib_of(pid: int) -> int:
    if KIND == "PSS":
        return _field(Path(f"/proc/{pid}/smaps_rollup"), "Pss")
    return _field(Path(f"/proc/{pid}/status"), "VmRSS")


def _field(path: Path, name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+) kB", path.read_text(), re.MULTILINE)
    return int(found.group(1)) if found else 0


def _mb(kib: float) -> str:
    return f"{kib * 1024 / 1e6:.2f} MB"


def _at_most(bound: float, kib: float) -> tuple[Target, ...]:
    return (Target(bound, kib * 1024 / 1e6, unit=" MB"),)
