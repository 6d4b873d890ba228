"""Containers: `docker run` for each command against cold, warm and persistent ones of the daemon.

A container takes a tenth of a second to make, so a sample is taken only when the pool has had the
time to make the next one: a warm container is what is measured, not the making of one.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from support.backends import environment
from support.daemon import Daemon, running_daemon
from support.engine import shared_engine

from bench import rows_daemon
from bench.lines import Line, Section, Target, ms
from bench.measure import Measured, Row, latency
from bench.place import NO_POOL, Place
from bench.rows_baseline import COMMAND

COLD_OF_RUN, WARM_OF_RUN, PERSISTENT_OF_BWRAP = 0.7, 0.05, 1.5
ROUNDS_OF_TEN = 2
APART_S = 0.7
TITLE = "One /bin/true in a container, the engine and its settings being the same"


def measured(place: Place) -> Section:
    engine = shared_engine()
    if engine is None:
        nothing = "There is no Docker engine here (dockerd, root), so none was run."
        return Section(TITLE, (), nothing)
    with ExitStack() as held:
        policy = {"manifest": {"fs_write_allow": [place.policy["workspace"]], "network": "deny"}}
        warm, cold = (held.enter_context(_started(config)) for config in (None, NO_POOL))
        each = [
            _docker_run(engine.url, rows_daemon.command_line(warm, policy)),
            held.enter_context(rows_daemon.execute("docker: execute, cold", cold, policy)),
            held.enter_context(rows_daemon.execute("docker: execute, warm", warm, policy)),
        ]
        kept = [
            held.enter_context(rows_daemon.persistent("docker: persistent sandbox", warm, policy)),
            held.enter_context(
                rows_daemon.persistent("bubblewrap: persistent sandbox", place.warm, policy)
            ),
        ]
        rounds = max(4, place.size.rounds * ROUNDS_OF_TEN // 10)
        # In two goes: the engine still removes a container when the next sample is due.
        results = latency(each, rounds=rounds, warm_up=2, turn=1, pace_s=APART_S)
        results += latency(kept, rounds=place.size.rounds)
    return Section(TITLE, tuple(_lines(*results)))


@contextmanager
def _started(config: str | None) -> Iterator[Daemon]:
    with running_daemon(env=environment("docker"), config=config) as daemon:
        yield daemon


def _docker_run(url: str, shown: list[str]) -> Row:
    """`shown` is what `manifest/check` says; the command takes the place of the init."""
    at = shown.index("--entrypoint")
    image = shown[at + 2]
    words = ["docker", "--host", url, *shown[1:at], "--entrypoint", COMMAND, image]

    def once() -> None:
        subprocess.run(words, check=True, stdin=subprocess.DEVNULL, capture_output=True)

    return Row("docker run, same flags", once)


def _lines(
    run: Measured, cold: Measured, warm: Measured, kept: Measured, bwrap: Measured
) -> list[Line]:
    return [
        _line(run, run, "docker run"),
        _line(cold, run, "docker run", COLD_OF_RUN),
        _line(warm, run, "docker run", WARM_OF_RUN),
        _line(kept, bwrap, "bubblewrap, persistent", PERSISTENT_OF_BWRAP),
        _line(bwrap, bwrap, "bubblewrap, persistent"),
    ]


def _line(one: Measured, base: Measured, name: str, most: float | None = None) -> Line:
    ratio = one.p50 / base.p50
    targets = (Target(most, ratio),) if most is not None else ()
    return Line(one.name, ms(one.p50), ms(one.p95), ratio, name, targets)
