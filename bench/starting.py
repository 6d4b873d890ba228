"""How long one short command takes, in every way that it can be run."""

from __future__ import annotations

from contextlib import ExitStack

from bench import rows_baseline, rows_daemon
from bench.lines import Line, Section, Target, ms
from bench.measure import Measured, latency
from bench.place import MINIMAL, Place

WARM_OF_BWRAP, WARM_OF_PLAIN, PERSISTENT_OF_PLAIN, CTL_OF_PLAIN = 0.35, 1.6, 1.2, 3.0


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
            rows_baseline.python_start(),
            rows_baseline.sandboxctl(place.warm.socket, place.policy["workspace"]),
            rows_baseline.bare_bwrap(rows_daemon.command_line(place.warm, MINIMAL)),
            held.enter_context(rows_daemon.execute("execute, warm", place.warm, MINIMAL)),
            held.enter_context(
                rows_daemon.persistent("execute, persistent sandbox", place.warm, MINIMAL)
            ),
        ]
        results = latency(rows, rounds=place.size.rounds)
    for one in results[-3:]:
        one.name += ", empty manifest"
    return Section(
        "One /bin/true, requests paced 20 ms apart",
        (*_lines(*results[:-3]), *_minimal(results[0], *results[-3:])),
        "`sandboxctl run` is a whole process: its ratio counts what it takes beyond Python's own "
        "start (`python -c pass`).",
    )


def _lines(
    plain: Measured, bwrap: Measured, cold: Measured, warm: Measured, persistent: Measured,
    python: Measured, ctl: Measured,
) -> list[Line]:  # fmt: skip
    of_plain, of_bwrap = warm.p50 / plain.p50, warm.p50 / bwrap.p50
    kept = persistent.p50 / plain.p50
    beyond = (ctl.p50 - python.p50) / plain.p50
    return [
        _line(plain, plain, "unsandboxed"),
        _line(bwrap, plain, "unsandboxed"),
        _line(cold, bwrap, "bare bwrap"),
        _line(warm, bwrap, "bare bwrap", Target(WARM_OF_BWRAP, of_bwrap)),
        _line(warm, plain, "unsandboxed", Target(WARM_OF_PLAIN, of_plain)),
        _line(persistent, plain, "unsandboxed", Target(PERSISTENT_OF_PLAIN, kept)),
        _line(python, plain, "unsandboxed"),
        Line(
            ctl.name, ms(ctl.p50), ms(ctl.p95), beyond, "unsandboxed, beyond python",
            (Target(CTL_OF_PLAIN, beyond),),
        ),
    ]  # fmt: skip


def _minimal(plain: Measured, bwrap: Measured, warm: Measured, persistent: Measured) -> list[Line]:
    of_plain, of_bwrap = warm.p50 / plain.p50, warm.p50 / bwrap.p50
    kept = persistent.p50 / plain.p50
    return [
        _line(bwrap, plain, "unsandboxed"),
        _line(warm, bwrap, "bare bwrap, empty manifest", Target(WARM_OF_BWRAP, of_bwrap)),
        _line(warm, plain, "unsandboxed", Target(WARM_OF_PLAIN, of_plain)),
        _line(persistent, plain, "unsandboxed", Target(PERSISTENT_OF_PLAIN, kept)),
    ]


def _line(one: Measured, base: Measured, name: str, *targets: Target) -> Line:
    return Line(one.name, ms(one.p50), ms(one.p95), one.p50 / base.p50, name, targets)
