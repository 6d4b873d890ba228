"""One execution's denials: feeds the classifier while it runs, and asks it once at the end.

Little output is classified at once. Larger output goes to the scan thread: a megabyte takes tens of
milliseconds, which would delay every other client.
"""

from __future__ import annotations

import logging
import posixpath
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from sandboxd import event_loop
from sandboxd.config.config import Ceiling
from sandboxd.denials import (
    ExplainRequest,
    RunEvidence,
    Setting,
    StreamScanner,
    languages_of,
    load_translations,
)
from sandboxd.denials.claims import live, publish
from sandboxd.denials.conclude import MAX_STRONG, attempt_denials, moved_denial
from sandboxd.denials.context import LimitHit
from sandboxd.denials.host import host_view
from sandboxd.denials.inferred import LISTERS
from sandboxd.denials.rules.filesystem import judge_operation, masked_denial
from sandboxd.denials.rules.network import gate_denial
from sandboxd.denials.rules.path_status import path_statuses
from sandboxd.denials.text.command_line import CommandLine
from sandboxd.denials.text.known_programs import NETWORK_PROGRAMS
from sandboxd.denials.text.verbs import Operation
from sandboxd.policy.mounts.mount_plan import Host, MountKind, MountPlan, mount_plan
from sandboxd.policy.network.host_rules import HostInvalid, parse_rule
from sandboxd.policy.paths.within import is_below
from sandboxd.policy.plan import Plan, SandboxSpec
from sandboxd.supervisor.execution.result import Ended
from sandboxd.supervisor.scan_thread import GivenUp, ScanThread
from sandboxd.traffic import GateRefusal, Traffic
from sandboxd.types import Attempt, ConnectAttempt, Evidence, ExitReport
from sandboxd_proto.denial import Denial
from sandboxd_proto.messages.execute import Outcome, StreamName, Tier
from sandboxd_proto.messages.explanation import Explanation

log = logging.getLogger(__name__)
T = TypeVar("T")
AT_ONCE_BYTES = 4096  # a piece that is classified on the event loop
AT_ONCE_TOTAL = 64 * 1024  # of one execution
AT_ONCE_EVENTS = 64  # refusals and pieces of evidence that are judged on the event loop
MANY_WORDS, LONG_LINE = 512, 16 * 1024  # a longer command line is for a thread


@dataclass(frozen=True, slots=True)
class HostTraits:
    """What judging needs of the machine, the same for every execution.

    `hidden`: paths that no manifest can show. `ceiling`: what no request may exceed. `own_code`:
    what no manifest can make writable.
    """

    host: Host
    landlock: bool
    root: bool
    hidden: tuple[str, ...] = ()
    ceiling: Ceiling | None = None
    own_code: tuple[str, ...] = ()
    scans: ScanThread = field(default_factory=ScanThread, compare=False)


class Classifier:
    """The classifier is made at the first byte: most commands print little or nothing."""

    def __init__(
        self, plan: Plan, argv: tuple[str, ...], traits: HostTraits, *, isolated: bool,
        mounts: bool, pty: bool, plan_flags: tuple[str, ...] = (),
    ) -> None:  # fmt: skip
        self._plan = plan
        self._argv = argv
        self._traits = traits
        self._isolated = isolated
        self._mounts = mounts
        self._pty = pty
        self._plan_flags = plan_flags
        self.filter_loaded = False
        self._scanner: StreamScanner | None = None
        self._facts: RunEvidence | None = None
        self._told: list[Denial] = []
        self._by_gate: set[str | None] = set()
        self._moved: set[str | None] = set()
        self._at_once = 0
        self._scans_running = 0
        self._given_up = False  # the output is not scanned any more: it takes too long

    async def feed(self, stream: StreamName, data: bytes) -> list[Denial]:
        """The denials that `data` shows. Larger data goes to the scan thread, in order."""
        if not self._isolated or self._given_up:
            return []
        small = len(data) <= AT_ONCE_BYTES and self._at_once + len(data) <= AT_ONCE_TOTAL
        if small and not self._scans_running:
            self._at_once += len(data)
            return self._told_now(self._scanned(stream, data))
        self._at_once = AT_ONCE_TOTAL
        nothing: list[Denial] = []
        return self._told_now(await self._in_thread(partial(self._scanned, stream, data), nothing))

    def _scanned(self, stream: StreamName, data: bytes) -> list[Denial]:
        if not self._isolated or self._given_up:
            return []
        try:
            if self._scanner is None:
                self._scanner = self._make()
            return self._scanner.feed(stream, data)
        except Exception:
            # A bug in the classifier must not fail the command: it only has no explanation, except
            # for what the kernel and the gate report.
            return self._failed([])

    def _told_now(self, found: list[Denial]) -> list[Denial]:
        # A refusal by the gate is not reported again for the program's message about it.
        found = [d for d in found if d.kind != "network" or d.target not in self._by_gate]
        self._told += found
        return found

    async def _in_thread(self, work: Callable[[], T], default: T) -> T:
        # The waiting task may be cancelled while the thread goes on.
        answer = event_loop.shield(self._submit(work))
        try:
            return await answer
        except GivenUp:
            log.warning("the output of a command was not classified: it took too long")
            self._given_up = True
            return default
        except Exception:
            return self._failed(default)
        finally:
            answer.cancel()  # nothing reads it any more

    def _failed(self, default: T) -> T:
        """A fault of ours: the result of the command is not lost for it."""
        log.exception("the output of a command was not classified")
        self._given_up = True
        return default

    def _submit(self, work: Callable[[], T]) -> event_loop.Future[T]:
        self._scans_running += 1
        answer = self._traits.scans.submit(work)
        answer.add_done_callback(self._scan_ended)
        return answer

    def _scan_ended(self, answer: event_loop.Future[T]) -> None:
        self._scans_running -= 1
        if not answer.cancelled():
            answer.exception()  # marks the exception as retrieved when no task waits any more

    def read(self, stream: StreamName, data: bytes) -> None:
        """Scan without telling: what is found is told at the end."""
        if not data or not self._isolated or self._given_up:
            return
        if self._scans_running or self._at_once + len(data) > AT_ONCE_TOTAL:
            self._at_once = AT_ONCE_TOTAL
            self._submit(partial(self._scanned, stream, data))
        else:
            self._at_once += len(data)
            self._scanned(stream, data)

    def refused(self, refusal: GateRefusal) -> list[Denial]:
        """What the gate refused, as it happens."""
        if not self._isolated:
            return []
        setting = self._setting()
        return self._certain(setting, [gate_denial(setting, gate_event(refusal))])

    def attempted(self, attempt: Attempt) -> list[Denial]:
        """What the kernel reports where the network is denied, as it happens."""
        if not self._isolated or self._is_long() or len(self._by_gate) >= MAX_STRONG:
            return []
        setting = self._setting()
        found = attempt_denials(setting, CommandLine(self._argv), attempt)
        return self._certain(setting, [d for d in found if d.target not in self._by_gate])

    def moved_aside(self, path: str, moved_to: str) -> list[Denial]:
        """A protected path that appeared, as it happens."""
        if not self._isolated or path in self._moved or len(self._moved) >= MAX_STRONG:
            return []
        setting = self._setting()
        found = publish(setting, [moved_denial(setting, path, moved_to, runs=True)])
        self._moved.update(denial.target for denial in found)
        return found

    def _certain(self, setting: Setting, found: list[Denial]) -> list[Denial]:
        denials = publish(setting, found)
        self._by_gate.update(denial.target for denial in denials)
        self._told += denials
        return denials

    def _is_long(self) -> bool:
        return len(self._argv) > MANY_WORDS or sum(map(len, self._argv)) > LONG_LINE

    async def judge_file(
        self, reason: str, attempts: Sequence[tuple[str, Operation]]
    ) -> Denial | None:
        """Why the sandbox refused one of these operations; None if the file system did."""
        if not self._isolated:
            return None
        try:
            return await self._in_thread(partial(self._judge_file, reason, attempts), None)
        except Exception:
            log.exception("a file operation could not be judged")
            return None

    def _judge_file(self, reason: str, attempts: Sequence[tuple[str, Operation]]) -> Denial | None:
        setting = replace(self._setting(), cwd=self._plan.workspace or self._plan.cwd)
        for path, did in attempts:
            denial = judge_operation(setting, reason, path, did)
            if denial is not None:
                return publish(setting, [denial])[0]
        return None

    async def judge_mask(self, path: str) -> Denial | None:
        """Where the sandbox shows an empty file or folder in place of `path` (canonical)."""
        if not self._isolated:
            return None
        return await self._in_thread(partial(self._judge_mask, path), None)

    def _judge_mask(self, path: str) -> Denial | None:
        setting = self._setting()
        at = path_statuses(setting, path)[0]
        if not (at.masked and at.on_host):
            return None
        denial = masked_denial(setting, "filesystem_read", at.path, at.place.path, "high")
        return publish(setting, [denial])[0]

    def _make(self) -> StreamScanner:
        languages = languages_of(self._plan.env, self._argv)
        return StreamScanner(self._setting(), load_translations(languages))

    def _setting(self) -> Setting:
        plan = self._plan
        places = mount_plan(plan.sandbox, self._traits.host)
        return Setting(
            plan=plan,
            layout=places if self._mounts else _unmounted(places),
            host=host_view(plan.sandbox.run_as),
            argv=self._argv,
            filter_loaded=self.filter_loaded,
            filter_kills=plan.syscall_policy == "strict",
            landlock=self._traits.landlock,
            masks_refuse=not self._mounts,
            host_root=self._traits.root and plan.sandbox.run_as is None,
            pty=self._pty,
            withheld=self._traits.hidden,
            ceiling=self._traits.ceiling,
            network_namespace=self._mounts,
            mounts=self._mounts,
            own_code=self._traits.own_code,
            plan_flags=self._plan_flags,
            platform=sys.platform,
        )

    async def finish(
        self, report: ExitReport, outcome: Outcome, ended_by: Ended | None,
        enforcement: dict[str, Tier], protected: tuple[tuple[str, str | None], ...] = (),
        traffic: Traffic | None = None,
    ) -> tuple[list[Denial], list[Denial]]:  # fmt: skip
        """(all denials, those that were not told yet)."""
        quiet = self._scanner is None and outcome == "exited" and report.exit_code == 0
        is_long = self._is_long()
        quiet = quiet and not (is_long or self._names_a_mask() or self._fails_in_silence())
        refusals = traffic.refusals if traffic is not None else []
        if not self._isolated or not (not quiet or protected or report.evidence or refusals):
            return [], []
        self._facts = facts = RunEvidence(
            outcome=outcome,
            exit_code=report.exit_code,
            signal=report.signal,
            limit_hit=_limit_hit(report, outcome),
            timed_out=ended_by == "timeout",
            cancelled=ended_by == "cancelled",
            setup_failure=report.lost,
            cpu_s=report.usage.cpu_ms / 1000,
            enforcement=enforcement,
            protected=protected,
            gate_events=tuple(map(gate_event, refusals)),
            notified=(*report.evidence.connections, *_closed_ports(traffic)),
            lookups=report.evidence.lookups,
            attempts_told=self._mounts or sys.platform == "linux",
            explained=report.evidence.explained,
            refused=report.evidence.refused,
            killed_calls=report.evidence.killed_calls,
            full=report.evidence.full,
            full_before=report.evidence.full_before,
            refused_peers=report.evidence.refused_peers,
            refused_sockets=report.evidence.refused_sockets,
            start_failure=report.start_failure if self._scanner is None else None,
        )
        events = len(refusals) + len(protected) + _size(report.evidence)
        if is_long:
            events += AT_ONCE_EVENTS + 1
        nothing: list[Denial] = []
        if not self._given_up:
            found = await self._wherever(partial(self._concluded, facts), nothing, events)
        if self._given_up:
            found = StreamScanner(replace(self._setting(), argv=())).finish(facts)
        return found, self._untold(found)

    def _untold(self, found: list[Denial]) -> list[Denial]:
        """A claim is told with low confidence: only the result has all evidence."""
        claims = {(d.kind, d.target) for d in self._told if d.claimed}
        new = [d for d in found if not (d.claimed and (d.kind, d.target) in claims)]
        new = [d for d in new if d.kind != "protected_path" or d.target not in self._moved]
        return [live(d) if d.claimed else d for d in new if d not in self._told]

    async def _wherever(self, work: Callable[[], T], default: T, events: int) -> T:
        """On the event loop if there was little to look at."""
        if self._at_once < AT_ONCE_TOTAL and events <= AT_ONCE_EVENTS:
            try:
                return work()
            except Exception:
                return self._failed(default)
        return await self._in_thread(work, default)

    def _concluded(self, facts: RunEvidence) -> list[Denial]:
        self._scanner = self._scanner or self._make()
        return self._scanner.finish(facts)

    def _names_a_mask(self) -> bool:
        """A masked file reads as empty: such a command succeeds and says nothing."""
        line = "\0".join(self._argv)
        for name in _mask_names(self._plan.sandbox, self._plan.workspace or self._plan.cwd):
            if name in line:
                return True
        return self._lists_a_folder()

    def _lists_a_folder(self) -> bool:
        """One that is hidden looks empty."""
        listers = LISTERS if self._mounts else ()
        if not self._argv or posixpath.basename(self._argv[0]) not in listers:
            return False
        return any(word.startswith("/") for word in self._argv[1:])

    def _fails_in_silence(self) -> bool:
        """Without a network namespace the kernel reports no attempts to connect."""
        if self._mounts or self._plan.sandbox.network.kind == "inherit":
            return False
        return any(name in word for word in self._argv for name in NETWORK_PROGRAMS)

    async def explanation(
        self, asked: ExplainRequest | None, denials: list[Denial], evidence: Evidence
    ) -> Explanation | None:
        """After `finish`: what the command needs. None without explain mode."""
        if asked is None or self._given_up or self._scanner is None or self._facts is None:
            return None
        work = partial(self._scanner.explain, self._facts, denials, asked)
        found = await self._in_thread(work, None)
        if found is None:
            return None
        return msgspec.structs.replace(found, truncated=evidence.truncated)


@lru_cache(maxsize=16)
def _mask_names(spec: SandboxSpec, inside: str) -> tuple[str, ...]:
    """How a command line names masked paths: those in `inside` also by their last part."""
    masks = [mask.path for mask in spec.masks]
    return (*masks, *(posixpath.basename(path) for path in masks if is_below(path, inside)))


def _size(evidence: Evidence) -> int:
    return len(evidence.connections) + len(evidence.lookups) + len(evidence.refused)


def _unmounted(places: MountPlan) -> MountPlan:
    """Without mounts the host's own /tmp is visible, and closed."""
    return MountPlan(
        replace(place, kind=MountKind.HIDDEN) if place.kind is MountKind.PRIVATE else place
        for place in places.places
    )


def _closed_ports(traffic: Traffic | None) -> tuple[ConnectAttempt, ...]:
    found = traffic.closed_ports if traffic is not None else ()
    return tuple(ConnectAttempt(address, port) for address, port in found)


def _limit_hit(report: ExitReport, outcome: Outcome) -> LimitHit | None:
    if outcome == "output_limit":
        return "output"
    return None if report.limit == "timeout" else report.limit


def gate_event(refusal: GateRefusal) -> GateRefusal:
    if refusal.allow is None and not _can_be_allowed(refusal.host):
        return replace(refusal, allow=())
    return refusal


def _can_be_allowed(host: str) -> bool:
    """A command can ask for any name; only names that a manifest accepts are proposed."""
    try:
        parse_rule(host)
    except HostInvalid:
        return False
    return True
