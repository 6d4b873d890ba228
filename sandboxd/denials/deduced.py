"""What the text left open, answered at the end with the exit and the command line.

A reason without a name, an exit status that means the network, operands that lead to masked or
hidden places, writes whose message was thrown away. Never more than medium confidence.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import msgspec

from sandboxd.denials import anatomy, filesystem, limits, network, programs
from sandboxd.denials.commandline import Simple
from sandboxd.denials.examiner import Examiner
from sandboxd.denials.facts import Facts
from sandboxd.denials.standing import Standing, read_only_somewhere, resolve, standings
from sandboxd_proto.denial import Denial

# Programs that only print their operands.
_PRINTERS = frozenset({"echo", "printf", "export", ":", "true", "false", "set", "alias"})


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
    if not setting.network_restricted or has_kind(found, "network"):
        return
    only = examiner.command.only
    by_status = only is not None and programs.says_network(only, facts.exit_code)
    noted = examiner.remembered(failed=facts.failed).network
    if not noted and not by_status:
        return
    hosts = command_hosts(examiner)
    for host in hosts:
        yield network.denial(setting, host, confidence="medium")
    if not hosts and noted and setting.plan.sandbox.network.kind == "deny":
        usual = [name for one in examiner.command.simple for name in programs.usual_hosts(one)]
        if usual:
            yield network.usual_denial(setting, tuple(dict.fromkeys(usual)))
        else:
            yield network.denial(setting, None, evidence="text", confidence="low")


def _nameless_text(examiner: Examiner, facts: Facts, found: list[Denial]) -> Iterator[Denial]:
    """A failed write without a path: a path on the command line may explain it."""
    nameless = examiner.remembered(failed=facts.failed).nameless
    if not nameless or has_kind(found, "filesystem_read", "filesystem_write", "protected_path"):
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
    if facts.failed and "EROFS" in nameless and read_only_somewhere(setting):
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
        # A word may be a program text that names paths in quotes.
        for name in dict.fromkeys([word, *anatomy.absolute_names(word[:65536])]):
            for at in _standings(examiner, name):
                if any(_related(at.path, other.target) for other in found):
                    continue
                if at.masked and at.on_host:
                    mask = at.place.path
                    yield filesystem.masked_denial("filesystem_read", at.path, mask, "medium")
                elif at.hidden and facts.failed and name == word and os.path.isabs(word):
                    yield filesystem.hidden_denial(setting, at.path, "medium")


def _silent_writes(examiner: Examiner, facts: Facts, found: list[Denial]) -> Iterator[Denial]:
    """`cp a /ro/b 2>/dev/null`: it cannot have worked, and its message was thrown away."""
    for one in examiner.command.simple:
        for name in programs.written(one) if one.silent else ():
            for at in _standings(examiner, name):
                known = any(_related(at.path, other.target) for other in found)
                if not known and programs.would_write(one, exists=at.on_host):
                    denial = filesystem.judge(
                        examiner.setting, examiner.command, "EROFS", [at.path], one.program + ":"
                    )
                    if denial is not None:
                        yield msgspec.structs.replace(denial, confidence="low")


def _standings(examiner: Examiner, name: str) -> list[Standing]:
    if len(name) > anatomy.MAX_NAME or "\n" in name:
        return []
    paths = resolve(examiner.setting, name, examiner.command.folders)
    return [at for path in paths for at in standings(examiner.setting, path)]


def command_hosts(examiner: Examiner) -> list[network.Endpoint | None]:
    ends = [network.Endpoint(host, port) for host, port in examiner.command.hosts]
    return [end for end in ends if network.refused(examiner.setting, end)]


def has_kind(found: list[Denial], *kinds: str) -> bool:
    return any(denial.kind in kinds for denial in found)


def _related(path: str, other: str | None) -> bool:
    if other is None:
        return False
    first, second = path.rstrip("/") + "/", other.rstrip("/") + "/"
    return first.startswith(second) or second.startswith(first)


STEPS = (_limit_text, _network_text, _nameless_text, _named, _silent_writes)
