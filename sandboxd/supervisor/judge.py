"""One execution's denials: feeds the classifier while it runs, and asks it once at the end."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

import msgspec

from sandboxd.denials import Asked, Facts, Setting, StreamScanner
from sandboxd.denials.hostview import host_view
from sandboxd.denials.network import gate_denial
from sandboxd.policy.layout import Host, Kind, Layout, layout
from sandboxd.policy.plan import Plan
from sandboxd.sandbox import Evidence, ExitReport
from sandboxd.supervisor.network_reports import gate_event
from sandboxd.supervisor.outcome import Ended
from sandboxd.traffic import Refusal, Traffic
from sandboxd_proto.denial import Denial
from sandboxd_proto.messages.execute import Outcome, StreamName, Tier
from sandboxd_proto.messages.explanation import Explanation

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Bench:
    """What judging needs of the machine, the same for every execution."""

    host: Host
    landlock: bool
    root: bool


class Judge:
    """The classifier is made at the first byte: most commands print little or nothing."""

    def __init__(
        self, plan: Plan, argv: tuple[str, ...], bench: Bench, *, isolated: bool, mounts: bool,
        pty: bool,
    ) -> None:  # fmt: skip
        self._plan = plan
        self._argv = argv
        self._bench = bench
        self._isolated = isolated
        self._mounts = mounts
        self._pty = pty
        self.filter_loaded = False
        self._scanner: StreamScanner | None = None
        self._facts: Facts | None = None
        self._told: list[Denial] = []
        self._by_gate: set[str | None] = set()

    def feed(self, stream: StreamName, data: bytes) -> list[Denial]:
        if not self._isolated:
            return []
        try:
            if self._scanner is None:
                self._scanner = self._make()
            found = self._scanner.feed(stream, data)
        except Exception:
            # A mistake in the classifier costs the explanation, never the command.
            log.exception("the output of a command could not be classified")
            self._isolated = False
            return []
        # What the gate has said already is not said again for the program's own words about it.
        found = [d for d in found if d.kind != "network" or d.target not in self._by_gate]
        self._told += found
        return found

    def refused(self, refusal: Refusal) -> list[Denial]:
        """What the gate refused, as it happens."""
        if not self._isolated:
            return []
        denial = gate_denial(self._setting(), gate_event(refusal))
        self._by_gate.add(denial.target)
        self._told.append(denial)
        return [denial]

    def _make(self) -> StreamScanner:
        return StreamScanner(self._setting())

    def _setting(self) -> Setting:
        plan = self._plan
        places = layout(plan.sandbox, self._bench.host)
        return Setting(
            plan=plan,
            layout=places if self._mounts else _unmounted(places),
            host=host_view(plan.sandbox.run_as),
            argv=self._argv,
            filter_loaded=self.filter_loaded,
            filter_kills=plan.syscall_policy == "strict",
            landlock=self._bench.landlock,
            masks_refuse=not self._mounts,
            host_root=self._bench.root and plan.sandbox.run_as is None,
            pty=self._pty,
        )

    def finish(
        self, report: ExitReport, outcome: Outcome, ended_by: Ended | None,
        enforcement: dict[str, Tier], protected: tuple[tuple[str, str | None], ...] = (),
        traffic: Traffic | None = None,
    ) -> tuple[list[Denial], list[Denial]]:  # fmt: skip
        """(all denials, those that were not told yet)."""
        quiet = self._scanner is None and outcome == "exited" and report.exit_code == 0
        quiet = quiet and not self._names_a_mask()
        refusals = traffic.refusals if traffic is not None else []
        if not self._isolated or not (not quiet or protected or report.evidence or refusals):
            return [], []
        self._scanner = scanner = self._scanner or self._make()
        self._facts = Facts(
            outcome=outcome,
            exit_code=report.exit_code,
            signal=report.signal,
            limit_hit="output" if outcome == "output_limit" else report.limit,
            timed_out=ended_by == "timeout",
            cancelled=ended_by == "cancelled",
            setup_failure=report.lost,
            cpu_s=report.usage.cpu_ms / 1000,
            enforcement=enforcement,
            protected=protected,
            gate_events=tuple(map(gate_event, refusals)),
            notified=report.evidence.connections,
            lookups=report.evidence.lookups,
            explained=report.evidence.explained,
            refused=report.evidence.refused,
            killed_calls=report.evidence.killed_calls,
        )
        found = scanner.finish(self._facts)
        return found, [denial for denial in found if denial not in self._told]

    def _names_a_mask(self) -> bool:
        """A masked file reads as empty: such a command succeeds and says nothing."""
        return any(m.path in word for m in self._plan.sandbox.masks for word in self._argv)

    def explanation(
        self, asked: Asked | None, denials: list[Denial], evidence: Evidence
    ) -> Explanation | None:
        """After `finish`: what the command needs. None if nobody asked."""
        if asked is None or self._scanner is None or self._facts is None:
            return None
        found = self._scanner.explain(self._facts, denials, asked)
        return msgspec.structs.replace(found, truncated=evidence.truncated)


def _unmounted(places: Layout) -> Layout:
    """Where nothing is mounted the host's own /tmp is there, and closed."""
    return Layout(
        replace(place, kind=Kind.HIDDEN) if place.kind is Kind.PRIVATE else place
        for place in places.places
    )
