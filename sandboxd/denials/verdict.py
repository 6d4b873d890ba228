"""The end of a command: daemon facts first, then kernel and gate, then what the text left open.

Denials that were sent while the command ran stay in the list as they were sent.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable, Iterator

from sandboxd.denials import limits, needs, network, programs, remedies, syscalls
from sandboxd.denials.deduced import STEPS, command_hosts, has_kind
from sandboxd.denials.examiner import Examiner
from sandboxd.denials.facts import Facts, Setting
from sandboxd_proto.denial import Denial

_SIGSYS = getattr(signal, "SIGSYS", 31)
_DNS_PORT = 53
MAX_STRONG = 32  # a command can ask the gate for any number of hosts


def conclude(examiner: Examiner, facts: Facts, sent: list[Denial]) -> list[Denial]:
    setting = examiner.setting
    if facts.setup_failure is not None:
        return _with_sent([_sandbox_error(facts.setup_failure)], sent)
    strong = [
        *_ended_by_daemon(setting, facts),
        *limits.known(setting, facts),
        *_killed_call(setting, facts),
        *_protected(facts),
        *_gate(setting, facts),
    ]
    if facts.explained:
        # The kernel told every refused access: words about files add nothing to that.
        strong += needs.denials(setting, needs.found(examiner, facts, sent))
        sent = [d for d in sent if d.kind not in needs.KINDS]
    found = _with_sent(merged([], strong)[:MAX_STRONG], sent)
    found = merged(found, _connections(examiner, facts, found))
    if facts.timed_out or facts.cancelled or facts.outcome in {"timeout", "cancelled"}:
        # The text of a command that was ended from outside explains nothing more.
        return found
    for step in STEPS:
        more = step(examiner, facts, found)
        if facts.explained:
            more = (d for d in more if d.kind not in needs.KINDS)
        found = merged(found, more)
    return found


def _with_sent(strong: list[Denial], sent: list[Denial]) -> list[Denial]:
    """What was sent stays, except where the same thing is now known on better evidence."""
    known = {(denial.kind, denial.target) for denial in strong}
    return [*strong, *(denial for denial in sent if (denial.kind, denial.target) not in known)]


def _is_same(one: Denial, other: Denial) -> bool:
    if one.layer == other.layer == "gate":
        return one.message == other.message  # one host at two ports is refused twice
    return one.target == other.target


def merged(first: Iterable[Denial], more: Iterable[Denial]) -> list[Denial]:
    """Without repetitions of kind and target, and without "something" where the thing is known."""
    found = list(first)
    for denial in more:
        same = [other for other in found if other.kind == denial.kind]
        if any(_is_same(other, denial) for other in same):
            continue
        if denial.target is None and same:
            continue
        found.append(denial)
    return found


def _sandbox_error(reason: str) -> Denial:
    return Denial(
        kind="sandbox_error", operation="setup", target=None, layer="engine", evidence="kernel",
        confidence="high", message=f"the sandbox could not be set up: {reason}", remedy=None,
    )  # fmt: skip


def _ended_by_daemon(setting: Setting, facts: Facts) -> Iterator[Denial]:
    if facts.timed_out or facts.outcome == "timeout":
        limit = setting.plan.timeout_s
        after = f" after {limit:g} s" if limit is not None else ""
        yield Denial(
            kind="timeout", operation="run", target=None, layer="supervisor", evidence="policy",
            confidence="high", message=f"the command was ended by its timeout{after}",
            remedy=remedies.more_time(limit),
        )  # fmt: skip
    if facts.outcome == "isolation_lost":
        text = "a mount of the sandbox was lost or a foreign one appeared, so everything was killed"
        yield Denial(
            kind="sandbox_error", operation="run", target=None, layer="supervisor",
            evidence="kernel", confidence="high", message=text, remedy=None,
        )  # fmt: skip


def _killed_call(setting: Setting, facts: Facts) -> Iterator[Denial]:
    for name in facts.killed_calls:
        yield syscalls.denial(setting, syscalls.named(name), "kernel", "high", name=name)
    if facts.explained or not setting.filter_kills:
        return
    if facts.signal == _SIGSYS and setting.filter_loaded:
        call = syscalls.named(facts.syscall)
        yield syscalls.denial(setting, call, "kernel", "high", name=facts.syscall)


def _protected(facts: Facts) -> Iterator[Denial]:
    for path, moved_to in facts.protected:
        moved = f" and was moved to {moved_to}" if moved_to else ""
        yield Denial(
            kind="protected_path", operation="create", target=path, layer="supervisor",
            evidence="kernel", confidence="high", remedy=None,
            message=f"{path} appeared{moved}: it is protected, because it can run code outside "
            "the sandbox later. No manifest allows it",
        )  # fmt: skip


def _gate(setting: Setting, facts: Facts) -> Iterator[Denial]:
    for event in facts.gate_events:
        yield network.gate_denial(setting, event)


def _connections(examiner: Examiner, facts: Facts, found: list[Denial]) -> Iterator[Denial]:
    """What the kernel reported. A query to a name server stands for the host it was about."""
    setting = examiner.setting
    asked = False
    aside = any(map(programs.checks_for_updates, examiner.command.simple))
    if setting.plan.sandbox.network.kind == "deny":
        # With allowed hosts the daemon's own responder answers, and reports what it refuses.
        for name in () if aside else facts.lookups[:MAX_STRONG]:
            end = network.Endpoint(name)
            if network.refused(setting, end):
                yield network.denial(setting, end, operation="lookup", evidence="kernel")
    for one in facts.notified[:MAX_STRONG]:
        end = network.Endpoint(one.address, one.port)
        if one.port == _DNS_PORT:
            asked = True
        elif network.refused(setting, end):
            yield network.denial(setting, end, evidence="kernel")
    if asked and setting.network_restricted and not (facts.lookups or has_kind(found, "network")):
        # A lookup of something by a command that succeeded: its own name, a version check.
        aside = aside or not facts.failed
        for host in command_hosts(examiner) or ([] if aside else [None]):
            yield network.denial(setting, host, operation="lookup", evidence="kernel")
