"""What the audit trail costs a warm command: the same daemon with and without one, in one run.

On a busy machine the times of two daemons say little, so the CPU time of the two records that each
command has is measured by itself, too.
"""

from __future__ import annotations

import tempfile
import time
from contextlib import ExitStack

import msgspec
from support.daemon import running_daemon

from bench import rows_daemon
from bench.lines import Line, Section, Target, ms
from bench.measure import latency
from bench.place import Place
from sandboxd.audit.trail import open_trail
from sandboxd.config.config import AuditConfig
from sandboxd.supervisor.recorder import Recorder
from sandboxd_proto.messages.approval import Requester
from sandboxd_proto.messages.execute import ExecuteResult

MOST = 1.05
# No folder can be made below a device: the daemon says so and records nothing.
NO_TRAIL = '[audit]\nfolder = "/dev/null/audit"\n'
REPEATS, BATCHES = 200, 25


def measured(place: Place) -> Section:
    with ExitStack() as held:
        off = held.enter_context(running_daemon(config=NO_TRAIL))
        on = held.enter_context(running_daemon())
        rows = [
            held.enter_context(rows_daemon.execute("execute, no trail", off, place.policy)),
            held.enter_context(rows_daemon.execute("execute, audit trail", on, place.policy)),
        ]
        without, recorded = latency(rows, rounds=place.size.rounds * 2)
        with on.connect() as connection:
            sample = connection.call("execute", {**place.policy, "argv": ["true"]})
    ratio = recorded.p50 / without.p50
    alone = _records_cpu_ms(msgspec.convert(sample, ExecuteResult))
    name = without.name
    return Section(
        "The audit trail: two records for each command",
        (
            Line(name, ms(without.p50), ms(without.p95), 1.0, name),
            Line(
                recorded.name, ms(recorded.p50), ms(recorded.p95), ratio, name,
                (Target(MOST, ratio),),
            ),
            Line("the two records alone, CPU time", f"{alone * 1000:.0f} µs"),
        ),
    )  # fmt: skip


def _records_cpu_ms(result: ExecuteResult) -> float:
    """The least of some batches: what it takes when nothing else is in the caches' way."""
    env = [(f"VARIABLE_{number}", "a value of usual length") for number in range(30)]
    facts: dict[str, object] = {
        "cwd": "/work", "backend": result.backend, "preset": "workspace-write",
        "workspace": "/work", "sandbox": None, "approval": None, "grants": [], "detached": False,
    }  # fmt: skip
    client, session = Requester(name="bench", pid=1), "se-" + "0" * 32
    best = float("inf")
    with tempfile.TemporaryDirectory() as folder:
        trail = open_trail(folder, AuditConfig())
        recorder = Recorder(trail)
        for _ in range(BATCHES):
            before = time.thread_time_ns()
            for _ in range(REPEATS):
                recorder.started(result.execution_id, session, client, ["make", "x"], env, facts)
                recorder.ended(session, result, env)
            best = min(best, (time.thread_time_ns() - before) / REPEATS / 1e6)
        trail.close()
    return best
