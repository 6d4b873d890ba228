"""`make bench`: p50, p95 and throughput of /bin/true, side by side, as ratios to bare bwrap."""

from __future__ import annotations

import argparse
import tempfile
from contextlib import ExitStack
from pathlib import Path

from support.daemon import Daemon, running_daemon

from bench import rows_baseline, rows_daemon
from bench.measure import latency, table, throughput

NO_POOL = "[pool]\nenabled = false\n"


def main() -> None:
    options = _options()
    with ExitStack() as held:
        folder = held.enter_context(tempfile.TemporaryDirectory(prefix="sbxd-bench-"))
        policy = {"preset": options.preset, "workspace": str(Path(folder).resolve())}
        warm = held.enter_context(running_daemon())
        cold = held.enter_context(running_daemon(config=NO_POOL))
        bwrap = rows_baseline.bare_bwrap(_command_line(warm, policy))
        rows = [
            rows_baseline.unsandboxed(),
            bwrap,
            held.enter_context(rows_daemon.execute("execute, no warm pool", cold, policy)),
            held.enter_context(rows_daemon.execute("execute", warm, policy)),
        ]
        measured = latency(rows, rounds=options.rounds)
        throughput(rows, measured, clients=options.clients, each=options.each)
    print(f"{rows_baseline.COMMAND}, preset {options.preset}, {options.rounds} rounds, interleaved")
    print(table(measured, reference=bwrap.name, clients=options.clients))


def _command_line(daemon: Daemon, policy: dict[str, str]) -> list[str]:
    with daemon.connect() as connection:
        words: list[str] = connection.call("manifest/check", policy)["command_line"]
        return words


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--rounds", type=int, default=100, help="samples of each row")
    parser.add_argument("--clients", type=int, default=8, help="clients at once for the throughput")
    parser.add_argument("--each", type=int, default=40, help="commands that each client runs")
    parser.add_argument("--preset", default="workspace-write")
    return parser.parse_args()


if __name__ == "__main__":
    main()
