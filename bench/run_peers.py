"""`make bench-peers`: the same command, and a file-heavy job, in other sandboxes and in ours.

Peers are installed into a folder that goes with the run (BENCH="--keep FOLDER" keeps it). One that
does not work here is named with the reason, and the others are measured all the same.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from bench import report, rows_baseline, rows_daemon
from bench.lines import Line, Section, ms, plain
from bench.measure import Disturbed, Measured, Row, latency, timed_ms
from bench.peers import codex, firejail, llm_sandbox, sandlock, srt
from bench.peers.peer import Peer, Run, Unusable, spawning
from bench.place import FULL, QUICK, Place, made_place

PEERS = (
    srt.PEER, codex.SERVER, codex.CLI, sandlock.PEER, llm_sandbox.PEER, llm_sandbox.DOCKER,
    firejail.PEER,
)  # fmt: skip
_FILES = """
import os, sys
for _ in range(20000):
    fd = os.open(sys.argv[1], os.O_RDONLY)
    os.read(fd, 4096)
    os.close(fd)
"""
Prepared = tuple[str, Run]


def main() -> None:
    options = _options()
    about = report.machine()
    with ExitStack() as held:
        place = held.enter_context(made_place("workspace-write", QUICK if options.quick else FULL))
        folder = options.keep or Path(held.enter_context(tempfile.TemporaryDirectory()))
        runs = _ours(place, held)
        unusable: list[str] = []
        for peer in PEERS:
            try:
                runs.append((peer.name, _ready(peer, folder.resolve(), place, held)))
            except Unusable as error:
                unusable.append(f"{peer.name}: {error}")
        sections = [_starting(runs, place), _files(runs, place)]
    note = "Not measured: " + "; ".join(unusable) + "." if unusable else ""
    sections[0] = Section(sections[0].title, sections[0].lines, note)
    print(f"\n{about}\n\n{plain(sections)}")
    if not options.quick:
        path = report.write(sections, about=about, command="make bench-peers", name="report-peers")
        print(f"written: {path}")


def _ready(peer: Peer, folder: Path, place: Place, held: ExitStack) -> Run:
    print(f"installing {peer.name} …", flush=True)
    own = folder / peer.name.partition(",")[0].replace("/", "_")
    own.mkdir(parents=True, exist_ok=True)
    peer.install(own)
    run = held.enter_context(peer.opened(own, Path(place.policy["workspace"])))
    try:
        for argv in ([rows_baseline.COMMAND], file_job()):
            timed_ms(_checked(peer.name, run, argv))
    except Disturbed as error:
        raise Unusable(f"it was installed, but {error}") from None
    return run


def _ours(place: Place, held: ExitStack) -> list[Prepared]:
    """The rows that peers are compared with, on the same command."""
    bwrap = rows_daemon.command_line(place.warm, place.policy)
    workspace = Path(place.policy["workspace"])
    connection = held.enter_context(place.warm.connect(timeout_s=120))
    kept = held.enter_context(rows_daemon.live(connection, place.policy))

    def warm(argv: Sequence[str]) -> int:
        rows_daemon.run(connection, {**place.policy, "argv": list(argv)})
        return 0

    def persistent(argv: Sequence[str]) -> int:
        kept.run(argv)
        return 0

    end = len(bwrap) - bwrap[::-1].index("--")
    return [
        ("unsandboxed subprocess.run", held.enter_context(spawning([], workspace))),
        ("bare bwrap", held.enter_context(spawning(bwrap[:end], workspace))),
        ("sandboxd, execute, warm", warm),
        ("sandboxd, execute, persistent sandbox", persistent),
    ]


def _checked(name: str, run: Run, argv: Sequence[str]) -> Callable[[], None]:
    def once() -> None:
        code = run(argv)
        if code != 0:
            raise Disturbed(f"{name}: {argv[0]} ended with {code}")

    return once


def _starting(runs: Sequence[Prepared], place: Place) -> Section:
    rows = [Row(name, _checked(name, run, [rows_baseline.COMMAND])) for name, run in runs]
    found = latency(rows, rounds=max(3, place.size.rounds // 4))
    return Section("One /bin/true, side by side", tuple(_lines(found)))


def file_job() -> list[str]:
    python = shutil.which("python3", path="/usr/bin:/usr/local/bin:/bin") or "python3"
    return [python, "-c", _FILES, "/usr/bin/env"]


def _files(runs: Sequence[Prepared], place: Place) -> Section:
    rows = [Row(name, _checked(name, run, file_job())) for name, run in runs]
    found = latency(rows, rounds=max(2, place.size.rounds // 8), turn=1, warm_up=1, pace_s=0.1)
    return Section("20,000 × open, read, close (a Python program)", tuple(_lines(found)))


def _lines(found: Sequence[Measured]) -> list[Line]:
    base = found[0].p50
    return [
        Line(one.name, ms(one.p50), ms(one.p95), one.p50 / base, "unsandboxed") for one in found
    ]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench-peers", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer samples; no report")
    parser.add_argument("--keep", type=Path, help="install there, and leave it for the next run")
    return parser.parse_args()


if __name__ == "__main__":
    main()
