"""How long one short command takes, in every way that it can be run."""

from __future__ import annotations

from contextlib import ExitStack
from itertools import cycle

from bench import rows_baseline, rows_daemon
from bench.least_daemon import least_daemon
from bench.lines import Line, Section, Target, ms
from bench.measure import Measured, Row, latency
from bench.place import MINIMAL, Place

WARM_OF_BWRAP, WARM_OF_PLAIN, PERSISTENT_OF_PLAIN, CTL_OF_PYTHON = 0.3, 1.6, 1.4, 1.4
COLD_OF_BWRAP, COLD_OF_BWRAP_EMPTY = 0.35, 0.6  # nothing is ready but the template
PACE_S, PACED_OF_PLAIN = 0.012, 2.0
WORKSPACES, ROTATED_OF_PLAIN = 40, 2.0


def measured(place: Place) -> Section:
    with ExitStack() as held:
        rows = [
            rows_baseline.unsandboxed(),
            rows_baseline.bare_bwrap(rows_daemon.command_line(place.warm, place.policy)),
            held.enter_context(rows_daemon.execute("execute, cold", place.cold, place.policy)),
            held.enter_context(rows_daemon.execute("execute, warm", place.warm, place.policy)),
            held.enter_context(
                rows_daemon.persistent("execute, persistent sandbox", place.warm, place.policy)
            ),
            held.enter_context(least_daemon(place.folder)),
            rows_baseline.python_start(),
            rows_baseline.sandboxctl(place.warm.socket, place.policy["workspace"]),
            rows_baseline.unsandboxed("unsandboxed again (noise)"),
            rows_baseline.bare_bwrap(rows_daemon.command_line(place.warm, MINIMAL)),
            held.enter_context(rows_daemon.execute("execute, cold", place.cold, MINIMAL)),
            held.enter_context(rows_daemon.execute("execute, warm", place.warm, MINIMAL)),
            held.enter_context(
                rows_daemon.persistent("execute, persistent sandbox", place.warm, MINIMAL)
            ),
        ]
        results = latency(rows, rounds=place.size.rounds)
    for one in results[-4:]:
        one.name += ", empty manifest"
    return Section(
        "One /bin/true, requests paced 20 ms apart",
        (*_lines(*results[:-4]), *_minimal(results[0], *results[-4:])),
        "Cold: nothing is kept ready but the template of the plan.",
    )


def paced(place: Place) -> Section:
    """Faster than what is kept ready can be replaced in leisure."""
    with ExitStack() as held:
        rows = [
            rows_baseline.unsandboxed(),
            held.enter_context(rows_daemon.execute("execute, warm", place.warm, place.policy)),
        ]
        plain, warm = latency(rows, rounds=place.size.rounds, turn=20, pace_s=PACE_S)
    ratio = warm.p50 / plain.p50
    lines = (
        _line(plain, plain, "unsandboxed"),
        _line(warm, plain, "unsandboxed", Target(PACED_OF_PLAIN, ratio)),
    )
    return Section(f"One /bin/true, requests paced {PACE_S * 1000:g} ms apart", lines)


def rotated(place: Place) -> Section:
    """Each request in the next one of many workspaces."""
    folders = [place.folder / f"rotated-{number}" for number in range(WORKSPACES)]
    for folder in folders:
        folder.mkdir()
    name = f"execute, {WORKSPACES} workspaces in rotation"
    with place.warm.connect() as connection:
        turns = cycle(folders)

        def once() -> None:
            policy = {**place.policy, "workspace": str(next(turns))}
            rows_daemon.run(connection, {**policy, "argv": [rows_baseline.COMMAND]})

        rows = [rows_baseline.unsandboxed(), Row(name, once)]
        plain, rotating = latency(rows, rounds=place.size.rounds, warm_up=2 * WORKSPACES, turn=10)
    ratio = rotating.p50 / plain.p50
    lines = (
        _line(plain, plain, "unsandboxed"),
        _line(rotating, plain, "unsandboxed", Target(ROTATED_OF_PLAIN, ratio)),
    )
    return Section("One /bin/true in many workspaces", lines)


def _lines(
    plain: Measured, bwrap: Measured, cold: Measured, warm: Measured, persistent: Measured,
    least: Measured, python: Measured, ctl: Measured, again: Measured,
) -> list[Line]:  # fmt: skip
    of_plain, of_bwrap = warm.p50 / plain.p50, warm.p50 / bwrap.p50
    kept = persistent.p50 / plain.p50
    return [
        _line(plain, plain, "unsandboxed"),
        _line(again, plain, "unsandboxed"),
        _line(bwrap, plain, "unsandboxed"),
        _line(cold, bwrap, "bare bwrap", Target(COLD_OF_BWRAP, cold.p50 / bwrap.p50)),
        _line(warm, bwrap, "bare bwrap", Target(WARM_OF_BWRAP, of_bwrap)),
        _line(warm, plain, "unsandboxed", Target(WARM_OF_PLAIN, of_plain)),
        _line(persistent, plain, "unsandboxed", Target(PERSISTENT_OF_PLAIN, kept)),
        _line(least, plain, "unsandboxed"),
        _line(python, plain, "unsandboxed"),
        _line(ctl, python, "python -c pass", Target(CTL_OF_PYTHON, ctl.p50 / python.p50)),
    ]


def _minimal(
    plain: Measured, bwrap: Measured, cold: Measured, warm: Measured, persistent: Measured
) -> list[Line]:
    of_plain, of_bwrap = warm.p50 / plain.p50, warm.p50 / bwrap.p50
    kept = persistent.p50 / plain.p50
    return [
        _line(bwrap, plain, "unsandboxed"),
        _line(
            cold,
            bwrap,
            "bare bwrap, empty manifest",
            Target(COLD_OF_BWRAP_EMPTY, cold.p50 / bwrap.p50),
        ),
        _line(warm, bwrap, "bare bwrap, empty manifest", Target(WARM_OF_BWRAP, of_bwrap)),
        _line(warm, plain, "unsandboxed", Target(WARM_OF_PLAIN, of_plain)),
        _line(persistent, plain, "unsandboxed", Target(PERSISTENT_OF_PLAIN, kept)),
    ]


def _line(one: Measured, base: Measured, name: str, *targets: Target) -> Line:
    return Line(one.name, ms(one.p50), ms(one.p95), one.p50 / base.p50, name, targets)
