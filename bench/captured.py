"""Output that the daemon collects for a result: what it costs, and whether others notice it."""

from __future__ import annotations

import shutil
import threading
import time
from pathlib import Path

from support.daemon import Daemon, running_daemon

from bench.lines import Line, Section, Target, ms
from bench.measure import Measured, timed_ms
from bench.place import Place
from bench.streaming import PROGRAM

CPU_MB_S, LOOP_MS = 200.0, 2.0
PROBE_S = 0.003


def measured(place: Place) -> Section:
    size = place.size.stream_bytes // 4
    python = shutil.which("python3", path="/usr/bin:/usr/local/bin:/bin") or "python3"
    params = {"argv": [python, "-c", PROGRAM, str(size)], "manifest": {"timeout": "none"}}
    alone, beside = Measured("alone"), Measured("beside")
    with running_daemon() as daemon, daemon.connect(timeout_s=300) as connection:
        _probe(daemon, alone, lambda: time.sleep(1.0))
        before = cpu_s(daemon.pid)
        _probe(daemon, beside, lambda: connection.call("execute", params))
        spent = cpu_s(daemon.pid) - before
    rate = size / spent / 1e6
    late = max(0.0, beside.p95 - alone.p50)
    return Section(
        f"Capturing {size >> 20} MiB of text",
        (
            Line(
                "captured output for a second of the daemon's CPU time", f"{rate:.0f} MB/s",
                targets=(Target(CPU_MB_S, rate, least=True, unit=" MB/s"),),
            ),
            Line("a request of another client, alone", ms(alone.p50), ms(alone.p95)),
            Line(
                "the same while output is captured", ms(beside.p50), ms(beside.p95),
                targets=(Target(LOOP_MS, late, unit=" ms later"),),
            ),
        ),
        "Later: the p95 during the capture against the p50 alone. It is what the event loop was "
        "busy for, and all that the machine did besides.",
    )  # fmt: skip


def _probe(daemon: Daemon, found: Measured, work: object) -> None:
    assert callable(work)
    over = threading.Event()

    def ask() -> None:
        with daemon.connect() as other:
            while not over.is_set():
                found.samples_ms.append(timed_ms(lambda: other.call("session/list")))
                time.sleep(PROBE_S)

    prober = threading.Thread(target=ask)
    prober.start()
    try:
        work()
    finally:
        over.set()
        prober.join()


def cpu_s(pid: int) -> float:
    """Of all threads, in nanoseconds exact."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9
