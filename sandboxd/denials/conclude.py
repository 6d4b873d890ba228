"""The final denials of a command: facts of the daemon, then of kernel and gate, then from text.

Denials that were reported while the command ran stay in the list, with their final confidence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial

from msgspec.structs import replace

from sandboxd.denials import claims, remedies
from sandboxd.denials.context import RunEvidence, Setting
from sandboxd.denials.explain import needs
from sandboxd.denials.inferred import FROM_COMMAND_LINE, FROM_TEXT, command_hosts, has_kind
from sandboxd.denials.rules import limits, network, syscall
from sandboxd.denials.text import known_programs
from sandboxd.denials.text.command_line import CommandLine
from sandboxd.denials.text.line_classifier import LineClassifier
from sandboxd.policy.display_names import named
from sandboxd.types import Attempt, ConnectAttempt
from sandboxd_proto.denial import Confidence, Denial

_SIGSYS = 31  # by number: Windows has no such name
_DNS_PORT = 53
MAX_STRONG = 32  # of one kind: a command can ask the gate for any number of hosts


def conclude(
    classifier: LineClassifier, facts: RunEvidence, said: list[Denial], stdout_notes: list[Denial]
) -> list[Denial]:
    """`said`: what the command claims where errors are printed; `stdout_notes`: on stdout alone."""
    setting = classifier.setting
    weighed = partial(claims.weigh, facts=facts, hosts=[h for h, _ in classifier.command.hosts])
    spoken = [weighed(denial) for denial in said]
    if facts.setup_failure is not None:
        failed = _sandbox_error(facts.setup_failure, ran=facts.outcome == "isolation_lost")
        certain = [*_protected(setting, facts), failed, *_gate(setting, facts)]
        return _with_sent(_bounded(certain), spoken)
    strong = [
        *_ended_by_daemon(setting, facts),
        *limits.reported_denials(setting, facts),
        *limits.no_space(setting, facts),
        *_killed_call(setting, facts),
        *_start(setting, facts),
        *_protected(setting, facts),
        *_gate(setting, facts),
        *_peers(setting, facts),
    ]
    if facts.explained:
        # The kernel reported every refused access: text about files adds nothing.
        strong += needs.denials(setting, needs.find_needs(classifier, facts, said))
        spoken = [d for d in spoken if d.kind not in needs.KINDS]
    elif facts.refused:
        # The kernel told some of what it refused: the command's words may tell the rest.
        strong += needs.denials(setting, needs.find_needs(classifier, facts, said))
    strong = _bounded(merge([], strong))
    strong = merge(strong, _connections(classifier, facts, [*strong, *spoken]))
    strong = merge(strong, _sockets(classifier, facts))
    found = _with_sent(strong, spoken)
    if facts.timed_out or facts.cancelled or facts.outcome in {"timeout", "cancelled"}:
        # The text of a command that was killed explains nothing.
        return found
    for step in (*FROM_TEXT, *FROM_COMMAND_LINE):
        weigh = weighed if step in FROM_TEXT else partial(claims.bound_confidence, facts=facts)
        more = [weigh(denial) for denial in step(classifier, facts, found)]
        if facts.explained:
            more = [d for d in more if d.kind not in needs.KINDS]
        found = merge(found, more)
    return merge(found, claims.stdout_notes(stdout_notes, facts))


def _bounded(denials: list[Denial]) -> list[Denial]:
    """The first of each kind: many protected files hide no host that was refused."""
    counts: Counter[str] = Counter()
    found = []
    for denial in denials:
        counts[denial.kind] += 1
        if counts[denial.kind] <= MAX_STRONG:
            found.append(denial)
    return found


def _with_sent(strong: list[Denial], sent: list[Denial]) -> list[Denial]:
    """Keep what was reported, unless better evidence for the same denial exists now."""
    known = {_subject(denial) for denial in strong}
    return [*strong, *(denial for denial in sent if _subject(denial) not in known)]


def _subject(denial: Denial) -> tuple[str, str | None]:
    """The addresses of this machine are one subject."""
    local = denial.kind == "network" and network.is_loopback(denial.target or "")
    return denial.kind, "localhost" if local else denial.target


def _is_same(one: Denial, other: Denial) -> bool:
    if one.layer == other.layer == "gate":
        return one.message == other.message  # one host at two ports is refused twice
    return one.target == other.target


def merge(first: Iterable[Denial], more: Iterable[Denial]) -> list[Denial]:
    """Without repetitions of kind and target, and without unnamed targets if one is named."""
    found = list(first)
    for denial in more:
        same = [other for other in found if other.kind == denial.kind]
        if any(_is_same(other, denial) for other in same):
            continue
        if denial.target is None and same:
            continue
        found.append(denial)
    return found


def _sandbox_error(reason: str, *, ran: bool) -> Denial:
    text = f"{reason}, so everything in the sandbox was ended"
    return Denial(
        kind="sandbox_error", operation="run" if ran else "setup", target=None, layer="engine",
        evidence="kernel", confidence="high", remedy=None,
        message=text if ran else f"the sandbox could not be set up: {reason}",
    )  # fmt: skip


def _ended_by_daemon(setting: Setting, facts: RunEvidence) -> Iterator[Denial]:
    if facts.timed_out or facts.outcome == "timeout":
        limit = setting.plan.timeout_s
        after = f" after {limit:g} s" if limit is not None else ""
        yield Denial(
            kind="timeout", operation="run", target=None, layer="supervisor", evidence="policy",
            confidence="high", message=f"the command was ended by its timeout{after}",
            remedy=remedies.raise_limit(setting, "timeout", limit),
        )  # fmt: skip
    if facts.outcome == "isolation_lost":
        text = "a mount of the sandbox was lost or a new one appeared, so every process was killed"
        yield Denial(
            kind="sandbox_error", operation="run", target=None, layer="supervisor",
            evidence="kernel", confidence="high", message=text, remedy=None,
        )  # fmt: skip


def _killed_call(setting: Setting, facts: RunEvidence) -> Iterator[Denial]:
    for name in facts.killed_calls:
        yield syscall.denial(setting, syscall.find_syscall(name), "kernel", "high", name=name)
    if facts.explained or not setting.filter_kills:
        return
    if facts.signal == _SIGSYS and setting.filter_loaded:
        call = syscall.find_syscall(facts.syscall)
        yield syscall.denial(setting, call, "kernel", "high", name=facts.syscall)


def _start(setting: Setting, facts: RunEvidence) -> Iterator[Denial]:
    if facts.start_failure is not None and facts.failed_by_itself and setting.argv:
        yield Denial(
            kind="process", operation="exec", target=setting.argv[0], layer="engine",
            evidence="kernel", confidence="high", remedy=None,
            message=f"{named(setting.argv[0])} ended before its first instruction: "
            f"{facts.start_failure}",
        )  # fmt: skip


def _protected(setting: Setting, facts: RunEvidence) -> Iterator[Denial]:
    for path, moved_to in facts.protected:
        yield moved_denial(setting, path, moved_to)


def moved_denial(
    setting: Setting, path: str, moved_to: str | None, *, runs: bool = False
) -> Denial:
    """A protected path that appeared or was changed. A folder stays while the command `runs`."""
    done, now = "was made, changed or removed, which is undone where that is possible", ""
    if moved_to and runs:
        done = f"appeared or was changed and was moved to {named(moved_to)}"
    elif moved_to and setting.host.exists(path):
        done = f"changed and was moved to {named(moved_to)}"
        now = "; what was there before, or its harmless part, is in its place"
    elif moved_to:
        done = f"appeared and was moved to {named(moved_to)}"
    return Denial(
        kind="protected_path", operation="create", target=path, layer="supervisor",
        evidence="kernel", confidence="high", remedy=None,
        message=f"{named(path)} {done}: it is protected, because it can run code outside the "
        f"sandbox later{now}",
    )  # fmt: skip


def _gate(setting: Setting, facts: RunEvidence) -> Iterator[Denial]:
    for event in facts.gate_events:
        yield network.gate_denial(setting, event)


def _peers(setting: Setting, facts: RunEvidence) -> Iterator[Denial]:
    """Socket files of the host. Those of the sandbox's own folders have lost their program."""
    for path in facts.refused_peers:
        if setting.layout.shows_host(path) and setting.host.exists(path):
            yield network.peer_denial(setting, path)


def _sockets(classifier: LineClassifier, facts: RunEvidence) -> Iterator[Denial]:
    """Sockets that could not be made. What they were for is not known: the command line may name
    the host of an Internet socket."""
    if "unix" in facts.refused_sockets and facts.failed:
        yield network.unix_denial()
    refused = facts.refused_inet
    if not refused:
        return
    hosts = command_hosts(classifier)
    for host in hosts:
        yield _no_socket(classifier.setting, host, "medium")
    group = known_programs.first_group(classifier.command.simple)
    aside = any(map(known_programs.checks_for_updates, classifier.command.simple))
    if hosts or (aside and not facts.failed):
        return
    if group is not None and facts.failed:
        yield network.tool_denial(group)
    elif "stream" in refused:
        yield _no_socket(classifier.setting, None, "high" if facts.failed else "medium")
    elif refused == {"blocking datagram"}:
        yield _no_socket(classifier.setting, None, "low")
    else:
        yield _no_socket(classifier.setting, None, "medium" if facts.failed else "low")


def _no_socket(setting: Setting, host: network.HostPort | None, confidence: Confidence) -> Denial:
    return network.denial(setting, host, evidence="kernel", confidence=confidence, layer="seccomp")


def _by_port(attempts: Iterable[ConnectAttempt]) -> list[ConnectAttempt]:
    """A program that tries both loopback addresses at a port means `localhost`."""
    known = {(one.address, one.port) for one in attempts}
    both = {port for address, port in known if address == "::1" and ("127.0.0.1", port) in known}
    named = (
        replace(one, address="localhost")
        if one.port in both and one.address in {"::1", "127.0.0.1"}
        else one
        for one in attempts
    )
    return list(dict.fromkeys(named))


def attempt_denials(setting: Setting, command: CommandLine, attempt: Attempt) -> list[Denial]:
    """What is certain of one attempt while the command runs, where the network is denied, as
    `_connections` says it. Only the end tells what ports of this machine and lookups mean that the
    command may do without."""
    simple = command.simple
    if isinstance(attempt, ConnectAttempt):
        end = network.HostPort(attempt.address, attempt.port)
        unclear, operation = attempt.port == _DNS_PORT, "connect"
    else:
        end, operation = network.HostPort(attempt, command.port_of(attempt)), "lookup"
        aside = any(map(known_programs.checks_for_updates, simple))
        unclear = aside or known_programs.asks_aside(simple)
    if unclear or network.is_loopback(end.host) or not network.is_refused(setting, end):
        return []
    return [network.denial(setting, end, operation=operation, evidence="kernel")]


def _connections(
    classifier: LineClassifier, facts: RunEvidence, found: list[Denial]
) -> Iterator[Denial]:
    """Attempts that the kernel reported. A DNS query counts as an attempt to reach its host."""
    setting = classifier.setting
    asked = False
    simple = classifier.command.simple
    aside = any(map(known_programs.checks_for_updates, simple))
    if not facts.failed and not has_kind(found, "network"):
        aside = aside or known_programs.asks_aside(simple)
    if setting.plan.sandbox.network.kind == "deny":
        # With allowed hosts the daemon's own responder answers, and reports what it refuses.
        for name in () if aside else facts.lookups[:MAX_STRONG]:
            end = network.HostPort(name, classifier.command.port_of(name))
            if network.is_refused(setting, end):
                yield network.denial(setting, end, operation="lookup", evidence="kernel")
    for one in _by_port(facts.notified)[:MAX_STRONG]:
        end = network.HostPort(one.address, one.port)
        if one.port == _DNS_PORT:
            asked = True
        elif network.is_refused(setting, end):
            yield network.denial(setting, end, evidence="kernel")
    if asked and setting.network_restricted and not facts.lookups:
        # A lookup of something by a command that succeeded: its own name, a version check.
        known = [denial for denial in found if denial.confidence != "low"]
        aside = aside or not facts.failed or has_kind(known, "network")
        hosts = command_hosts(classifier)
        group = known_programs.first_group(classifier.command.simple)
        if not hosts and not aside and group is not None:
            yield network.tool_denial(group)
            return
        for host in hosts or ([] if aside else [None]):
            # The lookup is certain; its name is a guess.
            yield network.denial(
                setting, host, operation="lookup", evidence="kernel", confidence="medium"
            )
