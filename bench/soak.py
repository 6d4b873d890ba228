"""`make soak`: clients at work for minutes, and the daemon's memory, descriptors and children.

Fails when a line grows: the last third of the samples is compared with the first third, which
begins after the daemon has seen every kind of request and has its caches filled.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.daemon import Daemon, running_daemon
from support.rpc import Connection

CLIENTS = 4
WARM_UP = 0.2  # of the time; not compared
# What a line may grow from the first third to the last: parts of itself, and a fixed amount. How
# many descriptors are open depends on what is running; one lost in a hundred commands shows.
SLACK = {"rss_kib": (0.05, 1024), "descriptors": (0.1, 40), "children": (0.1, 8)}


@dataclass(frozen=True, slots=True)
class Sample:
    at_s: float
    rss_kib: int
    descriptors: int
    children: int
    executions: int


class Work:
    """Every client runs all kinds of commands, each checked, until it is told to stop."""

    def __init__(self, daemon: Daemon, workspace: str) -> None:
        self._daemon = daemon
        self._workspace = workspace
        self._stop = threading.Event()
        self.counts = [0] * CLIENTS
        self.failures: list[BaseException] = []
        self._threads = [threading.Thread(target=self._client, args=(n,)) for n in range(CLIENTS)]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _client(self, number: int) -> None:
        try:
            while not self._stop.is_set():
                with self._daemon.connect(timeout_s=120) as connection:
                    self._turn(connection, number)
        except BaseException as error:
            self.failures.append(error)

    def _turn(self, connection: Connection, number: int) -> None:
        """One connection: fresh sandboxes, a persistent one, a stream, refusals, a timeout."""
        preset = {"preset": "workspace-write", "workspace": self._workspace}
        closed = {"manifest": {"network": "deny"}}
        sandbox = connection.call("sandbox/create", closed)["sandbox"]
        commands: Sequence[tuple[dict[str, Any], str, int | None]] = (
            ({**preset, "argv": ["true"]}, "exited", 0),
            ({**closed, "argv": ["sh", "-c", "echo x > /etc/x"]}, "exited", None),
            ({"sandbox": sandbox, "argv": ["cat"], "stdin": "y" * 70_000}, "exited", 0),
            ({**closed, "argv": ["seq", "20000"], "stream": True}, "exited", 0),
            ({"manifest": {"timeout": 0.05}, "argv": ["sleep", "9"]}, "timeout", None),
            ({"sandbox": sandbox, "argv": ["sh", "-c", "sleep 0.2 & exit 3"]}, "exited", 3),
        )
        for params, outcome, code in commands:
            result = connection.call("execute", params)
            if result["outcome"] != outcome or code not in (None, result["exit_code"]):
                raise RuntimeError(f"{params['argv']}: {result}")
            self.counts[number] += 1
            connection.notifications.clear()
        connection.call("sandbox/destroy", {"sandbox": sandbox})


def sample(daemon: Daemon, began: float, executions: int) -> Sample:
    status = Path(f"/proc/{daemon.pid}/status").read_text()
    rss = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    return Sample(
        at_s=time.monotonic() - began,
        rss_kib=int(rss.split()[1]),
        descriptors=_descriptors(daemon.pid),
        children=len(daemon.descendants()),
        executions=executions,
    )


def _descriptors(pid: int) -> int:
    """The daemon is not dumpable: only root may count them by name."""
    try:
        return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
    except PermissionError:
        # FDSize is the size of the table: a leak shows in it all the same, in steps.
        status = Path(f"/proc/{pid}/status").read_text()
        return int(next(x for x in status.splitlines() if x.startswith("FDSize")).split()[1])


def grown(samples: Sequence[Sample]) -> list[str]:
    """The lines that grew, with what they were and what they are."""
    settled = samples[int(len(samples) * WARM_UP) :]
    third = len(settled) // 3
    if third < 2:
        return ["too few samples: give it more seconds"]
    found: list[str] = []
    for name, (part, fixed) in SLACK.items():
        first = statistics.median(getattr(one, name) for one in settled[:third])
        last = statistics.median(getattr(one, name) for one in settled[-third:])
        if last > first * (1 + part) + fixed:
            found.append(f"{name} grew from {first:g} to {last:g}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="make soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=300.0)
    seconds: float = parser.parse_args().seconds
    samples: list[Sample] = []
    with tempfile.TemporaryDirectory(prefix="sbxd-soak-") as folder, running_daemon() as daemon:
        workspace = Path(folder).resolve()
        work = Work(daemon, str(workspace))
        began = time.monotonic()
        print("seconds  executions  rss KiB  descriptors  children")
        try:
            while time.monotonic() - began < seconds and not work.failures:
                time.sleep(seconds / 60)
                one = sample(daemon, began, sum(work.counts))
                samples.append(one)
                if len(samples) % 4 == 0:
                    print(f"{one.at_s:7.0f}  {one.executions:10}  {one.rss_kib:7}  "
                          f"{one.descriptors:11}  {one.children:8}", flush=True)  # fmt: skip
        finally:
            work.stop()
    problems = [f"a client failed: {error!r}" for error in work.failures] or grown(samples)
    for problem in problems:
        print(f"error: {problem}", file=sys.stderr)
    print("nothing grew" if not problems else "it does not stay flat")
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
