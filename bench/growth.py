"""Latency as things grow: the paths of a manifest, and the sandboxes that are alive."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from support.daemon import Daemon, running_daemon

from bench import rows_baseline, rows_daemon
from bench.lines import Line, Section, Target, ms
from bench.measure import PACE_S, Measured, Row, latency
from bench.place import MINIMAL, Place
from bench.rows_daemon import Params

PATHS = (1, 10, 100, 500)
LIVE = (1, 100, 500)
LIVE_GROWTH = 1.5
PATHS_GROWTH = 2.0  # of a warm command, with the most paths
AT_ONCE = 20  # sandboxes asked for before the first answer is read


def paths(place: Place) -> Section:
    """Requests are apart by what a bwrap with that many paths takes: the refill is off the path."""
    with ExitStack() as held:
        pairs = [_pair(place, count, held) for count in PATHS]
        paces = [PACE_S + 2 * latency([bare], rounds=1, warm_up=0, turn=2)[0].p50 / 1000
                 for bare, _ in pairs]  # fmt: skip
        for _, warm in pairs:
            latency([warm], rounds=1, warm_up=1, turn=1)
        found = [[Measured(row.name) for row in pair] for pair in pairs]
        for _ in range(place.size.growth_rounds):
            for pair, pace_s, results in zip(pairs, paces, found, strict=True):
                once = latency(pair, rounds=1, warm_up=0, turn=3, pace_s=pace_s)
                for result, more in zip(results, once, strict=True):
                    result.samples_ms += more.samples_ms
    return Section("As a manifest's paths grow", tuple(_path_lines(found)))


def _pair(place: Place, count: int, held: ExitStack) -> tuple[Row, Row]:
    policy = _with_paths(place.folder, count)
    bare = rows_baseline.bare_bwrap(rows_daemon.command_line(place.warm, policy))
    warm = held.enter_context(rows_daemon.execute("execute, warm", place.warm, policy))
    named = f"{count} path{'s' if count > 1 else ''}"
    return Row(f"bare bwrap, {named}", bare.once), Row(f"{warm.name}, {named}", warm.once)


def _path_lines(found: list[list[Measured]]) -> list[Line]:
    return [
        Line(
            one.name, ms(one.p50), ms(one.p95), one.p50 / first.p50, first.name,
            (Target(PATHS_GROWTH, one.p50 / first.p50),)
            if pair is found[-1] and one is pair[1] else (),
        )
        for pair in found
        for one, first in zip(pair, found[0], strict=True)
    ]  # fmt: skip


def _with_paths(folder: Path, count: int) -> Params:
    granted: list[str] = []
    for number in range(count):
        path = folder / f"of-{count}" / f"path-{number}"
        path.mkdir(parents=True)
        granted.append(str(path))
    return {"manifest": {"fs_read_allow": granted, "network": "deny"}}


def live(place: Place) -> Section:
    """Up and down again, so that a drift of the machine does not look like growth.

    The number of sandboxes cannot take turns, so each stage has the unsandboxed row beside it.
    Without a workspace: what is watched there is another matter (a user has 128 inotify instances).
    """
    stages = (*LIVE, *reversed(LIVE[:-1]))
    found: dict[int, list[list[Measured]]] = {count: [] for count in LIVE}
    with ExitStack() as held:
        daemon = held.enter_context(running_daemon())
        rows = [
            rows_baseline.unsandboxed(),
            held.enter_context(rows_daemon.execute("execute, warm", daemon, MINIMAL)),
            held.enter_context(rows_daemon.persistent("persistent", daemon, MINIMAL)),
        ]
        with _crowd(daemon, MINIMAL) as crowd:
            for count in stages:
                crowd.become(count - 1)
                found[count].append(latency(rows, rounds=place.size.growth_rounds * 2))
    joined = {count: [_joined(each) for each in zip(*runs, strict=True)]
              for count, runs in found.items()}  # fmt: skip
    return Section(
        "As live persistent sandboxes grow",
        tuple(_live_lines(joined)),
        "The ratio is that of `row / unsandboxed` at this stage to the same with one sandbox.",
    )


def _joined(runs: Sequence[Measured]) -> Measured:
    return Measured(runs[0].name, [sample for run in runs for sample in run.samples_ms])


def _live_lines(found: dict[int, list[Measured]]) -> list[Line]:
    first = found[LIVE[0]]
    lines: list[Line] = []
    for count, (plain, *rows) in found.items():
        for row, alone in zip(rows, first[1:], strict=True):
            ratio = (row.p50 / plain.p50) / (alone.p50 / first[0].p50)
            bound = (Target(LIVE_GROWTH, ratio),) if count == LIVE[-1] else ()
            lines.append(
                Line(f"{row.name}, {count} live", ms(row.p50), ms(row.p95), ratio, "1 live", bound)
            )
    return lines


class _Crowd:
    """Sandboxes that are only there."""

    def __init__(self, daemon: Daemon, policy: Params) -> None:
        self._connection = daemon.connect(timeout_s=120)
        self._policy = policy
        self._alive: list[str] = []

    def become(self, count: int) -> None:
        while len(self._alive) < count:
            wanted = min(AT_ONCE, count - len(self._alive))
            asked = [self._connection.start("sandbox/create", self._policy) for _ in range(wanted)]
            self._alive += [self._connection.result(number)["sandbox"] for number in asked]
        surplus, self._alive = self._alive[count:], self._alive[:count]
        asked = [self._connection.start("sandbox/destroy", {"sandbox": one}) for one in surplus]
        for number in asked:
            self._connection.result(number)

    def close(self) -> None:
        self.become(0)
        self._connection.close()


@contextmanager
def _crowd(daemon: Daemon, policy: Params) -> Iterator[_Crowd]:
    crowd = _Crowd(daemon, policy)
    try:
        yield crowd
    finally:
        crowd.close()
