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

from bench import rows_baseline, rows_daemon
from bench.lines import Line, Section, Target
from bench.place import Place

DAEMON_MB, USED_MB, SANDBOX_MB = 40.0, 48.0, 64 * 1024 / 1e6
BURST, WORKSPACES = 8, 200
SETTLE_S = 1.5
KIND = "PSS" if os.geteuid() == 0 else "RSS"


def measured(place: Place) -> Section:
    with running_daemon() as daemon:
        fresh = kib_of(daemon.pid)
        waiting, templates = _warm(daemon, place)
        used = kib_of(daemon.pid)
        _visit(daemon, place)
        rotated = kib_of(daemon.pid)
    after = kib_of(place.warm.pid)
    return Section(
        f"Memory ({KIND})",
        (
            Line("idle daemon, just started", _mb(fresh), targets=_at_most(DAEMON_MB, fresh)),
            Line(f"idle daemon, after {BURST} clients", _mb(used),
                 targets=_at_most(USED_MB, used)),
            Line(f"idle daemon, after {WORKSPACES} workspaces", _mb(rotated),
                 targets=_at_most(USED_MB, rotated)),
            Line("idle daemon, after this whole bench", _mb(after),
                 targets=_at_most(USED_MB, after)),
            Line(f"sandbox that waits, one of {len(waiting)}", _mb(max(waiting)),
                 targets=_at_most(SANDBOX_MB, max(waiting))),
            Line("template of a plan, with its bwrap: once for all of them", _mb(sum(templates))),
        ),
    )  # fmt: skip


def _warm(daemon: Daemon, place: Place) -> tuple[list[int], list[int]]:
    """The memory of each sandbox that waits, and of the processes that they are cloned from."""
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
    parents = {process.parent for process in below}
    waiting = [kib_of(process.pid) for process in below if process.pid not in parents]
    return waiting, [kib_of(process.pid) for process in below if process.pid in parents]


def _visit(daemon: Daemon, place: Place) -> None:
    """A command in each of many workspaces."""
    with daemon.connect() as connection:
        for number in range(WORKSPACES):
            folder = place.folder / f"visited-{number}"
            folder.mkdir()
            policy = {**place.policy, "workspace": str(folder)}
            rows_daemon.run(connection, {**policy, "argv": [rows_baseline.COMMAND]})
    time.sleep(SETTLE_S)


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
