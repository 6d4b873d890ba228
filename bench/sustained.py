"""How many commands a second: one client and eight, at full speed, against as many bwraps."""

from __future__ import annotations

from contextlib import ExitStack

from bench import rows_baseline, rows_daemon
from bench.lines import Line, Section, Target
from bench.measure import rates
from bench.place import Place

FRESH_OF_BWRAP, PERSISTENT_OF_BWRAP = 0.9, 4.0


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
        ]
        names = [row.name for row in rows]
        lines: list[Line] = []
        for clients in (1, 8):
            found = rates(rows, clients=clients, seconds=place.size.rate_s)
            lines += _lines(names, found, clients)
    return Section(
        "Sustained rate of /bin/true, 1 and 8 at once",
        tuple(lines),
        "A fresh sandbox for every command costs a bwrap each, so its rate is bounded by bwrap's.",
    )


def _lines(names: list[str], found: list[float], clients: int) -> list[Line]:
    base = found[1]
    bounds = (None, None, FRESH_OF_BWRAP, PERSISTENT_OF_BWRAP)
    return [
        Line(
            f"{name}, {clients} at once", f"{rate:.0f} /s", "", rate / base,
            f"bare bwrap, {clients}",
            (Target(bound, rate / base, least=True),) if bound and clients > 1 else (),
        )
        for name, rate, bound in zip(names, found, bounds, strict=True)
    ]  # fmt: skip
