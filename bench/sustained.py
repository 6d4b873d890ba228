"""How many commands a second: one client and eight, at full speed, against as many bwraps."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace

from bench import rows_baseline, rows_daemon
from bench.lines import Line, Section, Target
from bench.measure import Row, rates
from bench.place import MINIMAL, Place

FRESH_OF_BWRAP, FRESH_OF_BWRAP_EMPTY, PERSISTENT_OF_BWRAP = 4.5, 2.5, 4.0


def measured(place: Place) -> Section:
    with ExitStack() as held:
        rows = [
            rows_baseline.unsandboxed(),
            rows_baseline.bare_bwrap(rows_daemon.command_line(place.warm, place.policy)),
            held.enter_context(
                rows_daemon.execute("execute, fresh sandbox", place.warm, place.policy)
            ),
            held.enter_context(
                rows_daemon.persistent("execute, persistent", place.warm, place.policy)
            ),
            _empty(rows_baseline.bare_bwrap(rows_daemon.command_line(place.warm, MINIMAL))),
            _empty(
                held.enter_context(
                    rows_daemon.execute("execute, fresh sandbox", place.warm, MINIMAL)
                )
            ),
        ]
        names = [row.name for row in rows]
        lines: list[Line] = []
        for clients in (1, 8):
            found = rates(rows, clients=clients, seconds=place.size.rate_s)
            lines += _lines(names, found, clients)
    return Section(
        "Sustained rate of /bin/true, 1 and 8 at once",
        tuple(lines),
        "A fresh sandbox for every command is a clone of the plan's template.",
    )


def _empty(row: Row) -> Row:
    return replace(row, name=f"{row.name}, empty manifest")


def _lines(names: list[str], found: list[float], clients: int) -> list[Line]:
    bounds = (None, None, FRESH_OF_BWRAP, PERSISTENT_OF_BWRAP, None, FRESH_OF_BWRAP_EMPTY)
    bases = (1, 1, 1, 1, 4, 4)
    return [
        Line(
            f"{name}, {clients} at once", f"{rate:.0f} /s", "", rate / found[base],
            f"{names[base]}, {clients}",
            (Target(bound, rate / found[base], least=True),) if bound and clients > 1 else (),
        )
        for name, rate, bound, base in zip(names, found, bounds, bases, strict=True)
    ]  # fmt: skip
