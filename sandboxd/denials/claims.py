"""Denials from a command's output are claims: their confidence, and how they are reported.

While the command runs they have low confidence and no remedy. At the end they reach medium if the
command failed and the plan refuses exactly that access; the remedy is then marked as a claim. High
confidence needs the kernel, the gate or a limit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from itertools import islice

import msgspec

from sandboxd.denials.contents import HostLooks
from sandboxd.denials.context import RunEvidence, Setting
from sandboxd.denials.rules.network import is_loopback
from sandboxd.denials.withheld import refusal
from sandboxd.policy.display_names import escape_controls
from sandboxd_proto.denial import Denial

MOST_DENIALS = 64  # of one execution: a longer list is not useful
_DNS_PORT = 53
_SAID = "the command says: "


def live(denial: Denial) -> Denial:
    """A denial from text while nothing else is known."""
    return escape_denial(_low(_claimed(denial)))


def publish_live(setting: Setting, denials: Iterable[Denial]) -> list[Denial]:
    """While the command runs: without remedies, and with the reason where none will be given."""
    return [live(denial) for denial in publish(setting, map(_claimed, denials))]


def weigh(denial: Denial, facts: RunEvidence, hosts: Collection[str] = ()) -> Denial:
    """A denial from text at the end. `hosts`: those that the caller's command line names."""
    found = bound_confidence(_claimed(denial), facts)
    return found if _attempted(denial, facts, hosts) else _low(found)


def bound_confidence(denial: Denial, facts: RunEvidence) -> Denial:
    """At most medium, and a remedy only where the command failed. For what was deduced."""
    if denial.confidence == "high":
        denial = msgspec.structs.replace(denial, confidence="medium")
    if not facts.failed_by_itself and denial.claimed:
        return _low(denial)
    if not facts.failed_by_itself or denial.confidence == "low":
        return msgspec.structs.replace(denial, remedy=None)
    return denial


def stdout_notes(denials: Iterable[Denial], facts: RunEvidence) -> list[Denial]:
    """Text on stdout alone: a hint, and only if the command failed."""
    if not facts.failed_by_itself:
        return []
    return [_low(_claimed(denial)) for denial in denials]


def publish(
    setting: Setting, denials: Iterable[Denial], named: Callable[[str], bool] | None = None
) -> list[Denial]:
    """Denials for the answer: without withheld remedies, and safe to print.

    `named`: whether the caller's own command line asks for a path.
    """
    found = []
    looks = HostLooks(setting.host)
    for denial in islice(denials, MOST_DENIALS):
        asked = named is not None and any(map(named, _paths_of(denial)))
        claimed = denial.claimed and not asked
        why = refusal(setting, denial.remedy, looks, claimed=claimed, target=denial.target)
        if why is not None:
            message = f"{denial.message}. No change is proposed: {why}"
            denial = msgspec.structs.replace(denial, remedy=None, message=message)
        found.append(escape_denial(denial))
    return found


def _paths_of(denial: Denial) -> list[str]:
    """What it is about, and what would be allowed for that."""
    remedy = denial.remedy or {}
    more = (path for field in ("fs_read_allow", "fs_write_allow") for path in remedy.get(field, ()))
    return [path for path in (denial.target, *more) if path is not None]


def escape_denial(denial: Denial) -> Denial:
    """Escape control and bidi characters: a path may hold a terminal escape sequence."""
    if denial.message.isprintable() and (denial.target or "").isprintable():
        return denial
    target = None if denial.target is None else escape_controls(denial.target)
    return msgspec.structs.replace(denial, message=escape_controls(denial.message), target=target)


def _attempted(denial: Denial, facts: RunEvidence, hosts: Collection[str]) -> bool:
    """Whether the command can have tried what it says: of connections the kernel and the gate
    tell."""
    if denial.kind != "network" or not facts.attempts_told:
        return True
    seen = {one.address for one in facts.notified} | set(facts.lookups)
    seen |= {event.host.lower() for event in facts.gate_events}
    if not facts.lookups and any(one.port == _DNS_PORT for one in facts.notified):
        # A name was looked up in a way that does not show it: one of the caller's, perhaps.
        seen |= {host.lower() for host in hosts}
    if facts.refused_inet - {"blocking datagram"}:
        seen |= {host.lower() for host in hosts} or {""}
    target = (denial.target or "").lower().rstrip(".")
    if is_loopback(target):
        return any(map(is_loopback, seen))
    return target in seen if target else bool(seen)


def _claimed(denial: Denial) -> Denial:
    if denial.claimed:
        return denial
    return msgspec.structs.replace(denial, claimed=True, message=_SAID + denial.message)


def _low(denial: Denial) -> Denial:
    return msgspec.structs.replace(denial, confidence="low", remedy=None)
