"""Denials inferred at the end from the exit status and the command line, if the text is unclear.

An error without a name and an exit status that means the network are claims of the command. The
caller's own command line is not a claim: operands that name masked or hidden paths, writes whose
message was redirected to /dev/null. Confidence is medium at most.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from itertools import islice

import msgspec

from sandboxd.denials.context import RunEvidence, Setting
from sandboxd.denials.rules import filesystem, limits, network
from sandboxd.denials.rules.path_status import (
    PathStatus,
    path_statuses,
    read_only_somewhere,
    resolve,
)
from sandboxd.denials.text import known_programs, subjects
from sandboxd.denials.text.command_line import CommandLine
from sandboxd.denials.text.line_classifier import DATABASE, LineClassifier
from sandboxd.policy.mounts.mount_plan import MountKind
from sandboxd_proto.denial import Confidence, Denial

# Operands of one command line that are looked up on the host.
_MOST_OPERANDS = 512
_MOST_WRITTEN = 16
# Programs that only print their operands.
LISTERS = frozenset({"ls", "dir", "find", "tree", "du", "eza", "exa", "fd"})
_PRINTERS = frozenset({"echo", "printf", "export", ":", "true", "false", "set", "alias"})


def _limit_text(
    classifier: LineClassifier, facts: RunEvidence, found: list[Denial]
) -> Iterator[Denial]:
    noted = classifier.notes.limits
    for limit in limits.TEXT_LIMITS:
        if limit not in noted or limits.value(classifier.setting, limit) is None:
            continue
        asked = "max_memory_bytes" in classifier.setting.plan.asked
        if facts.failed or asked or limit != "memory":
            yield limits.denial(classifier.setting, limit, "text", "medium")


def _network_text(
    classifier: LineClassifier, facts: RunEvidence, found: list[Denial]
) -> Iterator[Denial]:
    """A network error without a host, or an exit status that means one."""
    setting = classifier.setting
    if not setting.network_restricted or has_kind(found, "network"):
        return
    only = classifier.command.only
    by_status = only is not None and known_programs.says_network(only, facts.exit_code)
    noted = classifier.notes.network
    if not noted and not by_status:
        return
    hosts = command_hosts(classifier)
    for host in hosts:
        yield network.denial(setting, host, confidence="medium")
    if not hosts and noted and setting.plan.sandbox.network.kind == "deny":
        group = known_programs.first_group(classifier.command.simple)
        if group is not None:
            yield network.tool_denial(group)
        else:
            yield network.denial(setting, None, evidence="text", confidence="low")


def _nameless_text(
    classifier: LineClassifier, facts: RunEvidence, found: list[Denial]
) -> Iterator[Denial]:
    """A failed write without a path: a path on the command line may explain it."""
    nameless = classifier.notes.nameless
    if not nameless or has_kind(found, "filesystem_read", "filesystem_write", "protected_path"):
        return
    setting, command = classifier.setting, classifier.command
    named = subjects.absolute_names(command.text)
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
    elif facts.failed and DATABASE in nameless and setting.mounts:
        yield Denial(
            kind="filesystem_write", operation="open", target=None, layer="mount",
            evidence="text", confidence="low", remedy=None,
            message="a database could not be opened, and its name is not said. In a folder that is "
            "not visible in the sandbox none is made: if it was to be written, that is the reason",
        )  # fmt: skip


def _named(classifier: LineClassifier, facts: RunEvidence, found: list[Denial]) -> Iterator[Denial]:
    """Operands that lead to masked or hidden paths: a mask reads as empty and says nothing."""
    setting = classifier.setting
    listed = {w for one in classifier.command.simple if one.program in LISTERS for w in one.words}
    for word, name in islice(_operands(classifier), _MOST_OPERANDS):
        for at in _statuses(classifier, name):
            if any(_related(at.path, other.target) for other in found):
                continue
            if at.masked and at.on_host:
                mask = at.place.path
                yield filesystem.masked_denial(setting, "filesystem_read", at.path, mask, "medium")
            elif at.hidden and facts.failed and name == word and _readable(setting, word, at):
                output = classifier.command.writes(word)
                if not (output and at.place.kind == MountKind.PRIVATE):  # which took it
                    yield filesystem.hidden_denial(setting, at.path, "medium", output=output)
            elif name == word and name in listed and _shows_no_content(at):
                yield filesystem.hidden_denial(setting, at.path, "low", empty=True)


def _shows_no_content(at: PathStatus) -> bool:
    """A folder that shows only what is allowed in it: it can be listed, and looks empty."""
    return at.place.kind == MountKind.HIDDEN and at.visible and at.on_host


def _readable(setting: Setting, word: str, at: PathStatus) -> bool:
    return posixpath.isabs(word) and setting.host.permits(at.path, "read")


def _operands(classifier: LineClassifier) -> Iterator[tuple[str, str]]:
    """(word, name in it): a word may be a program text that names paths in quotes."""
    for one in classifier.command.simple:
        if one.program not in _PRINTERS:
            for word in one.words:
                for name in dict.fromkeys([word, *subjects.absolute_names(word[:65536])]):
                    yield word, name


def _unmade(
    classifier: LineClassifier, facts: RunEvidence, found: list[Denial]
) -> Iterator[Denial]:
    """`curl -so /hidden/new …`: it failed, and what it was to make could not be made."""
    if not facts.failed or has_kind(found, "filesystem_read", "filesystem_write", "protected_path"):
        return
    setting, command = classifier.setting, classifier.command
    reasons = ("ENOENT", "EROFS") if setting.mounts else ("EACCES",)
    for one in command.simple[:_MOST_OPERANDS]:
        for name in filter(posixpath.isabs, known_programs.written(one)[:_MOST_WRITTEN]):
            answers = (filesystem.judge(setting, command, reason, [name], "") for reason in reasons)
            denial = next(filter(None, answers), None)
            if denial is not None and denial.kind == "filesystem_write":
                yield msgspec.structs.replace(denial, confidence="medium")
                return


def _silent_writes(
    classifier: LineClassifier, facts: RunEvidence, found: list[Denial]
) -> Iterator[Denial]:
    """`cp a /ro/b 2>/dev/null`: it cannot have worked, and its message was discarded."""
    for one in classifier.command.simple[:_MOST_OPERANDS]:
        for name in known_programs.written(one)[:_MOST_WRITTEN] if one.silent else ():
            for at in _statuses(classifier, name):
                known = any(_related(at.path, other.target) for other in found)
                if not known and known_programs.would_write(one, exists=at.on_host):
                    denial = filesystem.judge(
                        classifier.setting,
                        classifier.command,
                        "EROFS",
                        [at.path],
                        one.program + ":",
                    )
                    if denial is not None:
                        yield msgspec.structs.replace(denial, confidence="low")


def _unreached(
    classifier: LineClassifier, facts: RunEvidence, found: list[Denial]
) -> Iterator[Denial]:
    """`curl -s URL || true` where no socket can be made: it cannot have worked, and the kernel
    tells of no attempt."""
    setting = classifier.setting
    if setting.network_namespace or not setting.network_restricted or has_kind(found, "network"):
        return
    for one in classifier.command.simple:
        named = (
            CommandLine((one.program, *one.words)).hosts
            if known_programs.needs_network(one)
            else ()
        )
        for host, port in named:
            end = network.HostPort(host, port)
            if network.is_refused(setting, end):
                sure: Confidence = "medium" if facts.failed else "low"
                yield network.denial(setting, end, confidence=sure, layer="seccomp")


def _statuses(classifier: LineClassifier, name: str) -> list[PathStatus]:
    if len(name) > subjects.MAX_NAME or "\n" in name:
        return []
    paths = resolve(classifier.setting, name, classifier.command.folders)
    return [at for path in paths for at in path_statuses(classifier.setting, path)]


def command_hosts(classifier: LineClassifier) -> list[network.HostPort | None]:
    ends = [network.HostPort(host, port) for host, port in classifier.command.hosts]
    return [end for end in ends if network.is_refused(classifier.setting, end)]


def has_kind(found: list[Denial], *kinds: str) -> bool:
    return any(denial.kind in kinds for denial in found)


def _related(path: str, other: str | None) -> bool:
    if other is None:
        return False
    first, second = path.rstrip("/") + "/", other.rstrip("/") + "/"
    return first.startswith(second) or second.startswith(first)


FROM_TEXT = (_limit_text, _network_text, _nameless_text)
FROM_COMMAND_LINE = (_named, _silent_writes, _unmade, _unreached)
