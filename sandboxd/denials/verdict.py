"""The end of a command: daemon facts first, then kernel and gate, then what the text left open.

Denials that were sent while the command ran stay in the list as they were sent.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Iterator

import msgspec

from sandboxd.denials import anatomy, filesystem, limits, network, programs, remedies, syscalls
from sandboxd.denials.commandline import Simple
from sandboxd.denials.examiner import Examiner
from sandboxd.denials.facts import Facts, Setting
from sandboxd.denials.standing import resolve, standings
from sandboxd_proto.denial import Denial

_SIGSYS = getattr(signal, "SIGSYS", 31)
_DNS_PORT = 53
# Programs that only print their operands.
_PRINTERS = frozenset({"echo", "printf", "export", ":", "true", "false", "set", "alias"})


def conclude(examiner: Examiner, facts: Facts, sent: list[Denial]) -> list[Denial]:
    setting = examiner.setting
    if facts.setup_failure is not None:
        return merged(sent, [_sandbox_error(facts.setup_failure)])
    strong = [
        *_ended_by_daemon(setting, facts),
        *limits.known(setting, facts),
        *_killed_call(setting, facts),
        *_protected(facts),
        *_gate(setting, facts),
    ]
    found = merged(strong, sent)
    found = merged(found, _connections(examiner, facts, found))
    if facts.timed_out or facts.cancelled or facts.outcome in {"timeout", "cancelled"}:
        # The text of a command that was ended from outside explains nothing more.
        return found
    for step in (_limit_text, _network_text, _nameless_text, _named):
        found = merged(found, step(examiner, facts, found))
    return found


def merged(first: Iterable[Denial], more: Iterable[Denial]) -> list[Denial]:
    """Without repetitions of kind and target, and without "something" where the thing is known."""
    found = list(first)
    for denial in more:
        same = [other for other in found if other.kind == denial.kind]
        if any(other.target == denial.target for other in same):
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
        end = network.Endpoint(event.host, event.port)
        yield network.denial(setting, end, evidence="gate", layer="gate", note=event.reason)


def _connections(examiner: Examiner, facts: Facts, found: list[Denial]) -> Iterator[Denial]:
    """What the kernel reported. A query to a name server stands for the host it was about."""
    setting = examiner.setting
    asked = False
    for one in facts.notified:
        end = network.Endpoint(one.address, one.port)
        if one.port == _DNS_PORT:
            asked = True
        elif network.refused(setting, end):
            yield network.denial(setting, end, evidence="kernel")
    if asked and setting.network_restricted and not _has(found, "network"):
        hosts = _command_hosts(examiner) or [None]
        for host in hosts:
            yield network.denial(setting, host, operation="lookup", evidence="kernel")


def _limit_text(examiner: Examiner, facts: Facts, found: list[Denial]) -> Iterator[Denial]:
    noted = examiner.remembered(failed=facts.failed).limits
    for limit in limits.TEXT_LIMITS:
        if limit not in noted or limits.value(examiner.setting, limit) is None:
            continue
        if facts.failed or limit != "memory":
            yield limits.denial(examiner.setting, limit, "text", "medium")


def _network_text(examiner: Examiner, facts: Facts, found: list[Denial]) -> Iterator[Denial]:
    """A network error without a host, or an exit status that means one."""
    setting = examiner.setting
    if not setting.network_restricted or _has(found, "network"):
        return
    only = examiner.command.only
    by_status = only is not None and programs.says_network(only, facts.exit_code)
    noted = examiner.remembered(failed=facts.failed).network
    if not noted and not by_status:
        return
    hosts = _command_hosts(examiner)
    for host in hosts:
        yield network.denial(setting, host, confidence="medium")
    if not hosts and noted and setting.plan.sandbox.network.kind == "deny":
        yield network.denial(setting, None, evidence="text", confidence="low")


def _command_hosts(examiner: Examiner) -> list[network.Endpoint | None]:
    ends = [network.Endpoint(host, port) for host, port in examiner.command.hosts]
    return [end for end in ends if network.refused(examiner.setting, end)]


def _nameless_text(examiner: Examiner, facts: Facts, found: list[Denial]) -> Iterator[Denial]:
    """A failed write without a path: a path on the command line may explain it."""
    nameless = examiner.remembered(failed=facts.failed).nameless
    if not nameless or _has(found, "filesystem_read", "filesystem_write", "protected_path"):
        return
    setting, command = examiner.setting, examiner.command
    named = anatomy.absolute_names(command.text)
    for reason in ("EROFS", "unwritable", "unopened"):
        if reason not in nameless or not (facts.failed or reason == "EROFS"):
            continue
        if reason != "EROFS":
            # An existing file may have been meant to be read.
            named = [n for n in named if command.writes(n) or not setting.host.exists(n)]
        denial = filesystem.judge(setting, command, reason, named, "")
        if denial is not None:
            yield msgspec.structs.replace(denial, confidence="medium")
            return
    if facts.failed and "EROFS" in nameless:
        yield Denial(
            kind="filesystem_write", operation="write", target=None, layer="mount",
            evidence="text", confidence="low", remedy=None,
            message="something was written to a place that is not in fs_write_allow",
        )  # fmt: skip


def _named(examiner: Examiner, facts: Facts, found: list[Denial]) -> Iterator[Denial]:
    """Operands that lead to masked or hidden paths: a mask reads as empty and says nothing."""
    for one in examiner.command.simple:
        if one.program not in _PRINTERS:
            yield from _operands(examiner, one, facts, found)


def _operands(
    examiner: Examiner, one: Simple, facts: Facts, found: list[Denial]
) -> Iterator[Denial]:
    setting = examiner.setting
    for word in one.words:
        names = [word] if len(word) < anatomy.MAX_NAME and "\n" not in word else []
        for path in resolve(setting, word, examiner.command.folders) if names else []:
            for at in standings(setting, path):
                if any(_related(at.path, other.target) for other in found):
                    continue
                if at.masked and at.on_host:
                    yield filesystem.masked_denial(
                        "filesystem_read", at.path, at.place.path, "medium"
                    )
                elif at.hidden and facts.failed and os.path.isabs(word):
                    yield filesystem.hidden_denial(setting, at.path, "medium")


def _has(found: list[Denial], *kinds: str) -> bool:
    return any(denial.kind in kinds for denial in found)


def _related(path: str, other: str | None) -> bool:
    if other is None:
        return False
    first, second = path.rstrip("/") + "/", other.rstrip("/") + "/"
    return first.startswith(second) or second.startswith(first)
