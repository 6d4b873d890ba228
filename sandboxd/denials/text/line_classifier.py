"""One line of output → the denials that it reports, and notes for the end.

Some texts can be judged only when the exit status is known, or need a name from elsewhere: they
become a note. All others are decided here, while the command still runs.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice

import msgspec

from sandboxd.denials.context import Setting
from sandboxd.denials.remedies import to_write
from sandboxd.denials.rules import filesystem, network, process, syscall
from sandboxd.denials.rules.limits import TEXT_LIMITS, TextLimit
from sandboxd.denials.rules.path_status import resolve
from sandboxd.denials.text import subjects
from sandboxd.denials.text.command_line import CommandLine
from sandboxd.denials.text.foreign import SANDBOX_EXEC_LOG
from sandboxd.denials.text.phrases import PhraseMatch, SignFinder
from sandboxd.policy.paths.within import folders_above
from sandboxd_proto.denial import Denial
from sandboxd_proto.messages.execute import StreamName

# A message that is itself the subject: a failed assertion about it, one side of a diff.
_QUOTING = re.compile(r"Assertion ?Error|^\s*FAIL(?:ED)?:|\bexpected\b|^[+-] |\bassert\b")
_ERRNO = ("EROFS", "EBUSY", "EACCES", "ENOENT", "EPERM")
_PATH_STEPS = 500
_MOST_ASKED = 128  # names of one command line
_MAY_LACK_NAME = ("EROFS", "unwritable", "unopened")
DATABASE = "database"  # of SQLite, whose message has no name
_MOST_ABOVE = 8  # folders above the working directory that may have packages
_NODE = re.compile(r"Cannot find (?:module|package) ")
_SOCKET = re.compile(r"\bsocket\b|\bsend(?:to|msg)\b|\bconnect\b|\bping\b|cap_net_raw")


@dataclass(slots=True)
class LineNotes:
    """What was read and not decided: `limits` by name, network errors without a host, and
    reasons about files that no name came with."""

    limits: set[TextLimit] = field(default_factory=set)
    network: bool = False
    nameless: set[str] = field(default_factory=set)


class LineClassifier:
    def __init__(self, setting: Setting, finder: SignFinder) -> None:
        self.setting = setting
        self.command = CommandLine(setting.argv, dict(setting.plan.env).get("HOME", "").rstrip("/"))
        self.notes = LineNotes()
        self.steps = 0  # characters read and names looked up: what the work so far has cost
        self._finder = finder
        # Where stderr is redirected to stdout, stdout counts as stderr.
        self._trusts_stdout = setting.pty or self.command.merges_stderr

    def trusts(self, stream: StreamName) -> bool:
        """Whether errors are printed to this stream."""
        return stream == "stderr" or self._trusts_stdout

    def asked_for(self, path: str) -> bool:
        """Whether the caller's own command line names this path, or has to write in it."""
        return path in self._asked_for

    @cached_property
    def _asked_for(self) -> frozenset[str]:
        setting, command = self.setting, self.command
        words = [w for one in command.simple for w in (*one.words, *one.writes_to)]
        found: dict[str, None] = {}
        for name in (*words, *subjects.absolute_names(command.text))[:_MOST_ASKED]:
            if len(name) <= subjects.MAX_NAME:
                paths = resolve(setting, name, command.folders)
                found |= dict.fromkeys(paths)
                if command.writes(name):
                    # `mkdir -p p/d/e` names a part of it in its message, `sed -i p` a new file.
                    entry = command.replaces(name)
                    found |= {to_write(setting.host, p, in_folder=entry): None for p in paths}
        return frozenset([*found, *map(setting.host.canonical, islice(found, _MOST_ASKED))])

    def examine(self, line: str, before: list[str], stream: StreamName) -> list[Denial]:
        """`before`: the few lines above, for messages that name their subject there."""
        self.steps += len(line)
        whole, line = line, subjects.without_cut_path(line)
        if line != whole:  # it names its subject, which the lines above do not
            before = []
        matches = {match.name: match for match in self._finder.find(line)}
        if not matches or _is_quoted(line):
            return []
        if self.trusts(stream):
            self._note(self.notes, matches, line)
            return self._judge(self.notes, matches, line, before)
        # stdout is mostly data: an error in the middle of a sentence does not count.
        if not any(subjects.is_report(line, m.start, m.end) for m in matches.values()):
            return []
        return self._judge(LineNotes(), matches, line, before)

    def _judge(
        self, notes: LineNotes, matches: dict[str, PhraseMatch], line: str, before: list[str]
    ) -> list[Denial]:
        denial = (
            self._process(matches, line, before)
            or self._file(notes, matches, line, before)
            or self._network(matches, line)
            or self._syscall(matches, line)
        )
        return [denial] if denial is not None else []

    def _process(
        self, matches: dict[str, PhraseMatch], line: str, before: list[str]
    ) -> Denial | None:
        setting = self.setting
        if "ESRCH" in matches:
            return process.judge_pid(setting, self.command, line)
        if "no_new_privs" in matches:
            return process.judge_privileges(line)
        if "unsigned" in matches:
            return process.judge_signing(setting)
        if "ENOENT" in matches and "/proc/" in line:
            return process.judge_proc(setting, line)
        if "missing_command" in matches or "ENOENT" in matches:
            return process.judge_command(setting, line)
        if "EACCES" in matches:
            return process.judge_listening(self.command, line, before)
        return None

    def _file(
        self, notes: LineNotes, matches: dict[str, PhraseMatch], line: str, before: list[str]
    ) -> Denial | None:
        setting, command = self.setting, self.command
        reasons = [name for name in _ERRNO if name in matches]
        if syscall.about_mounting(line):
            return None
        if "EXDEV" in matches:
            names = subjects.names(line, matches["EXDEV"].start, matches["EXDEV"].end)
            self._spend(names, line)
            return filesystem.judge_link(setting, command, names)
        if setting.platform == "darwin" and (logged := SANDBOX_EXEC_LOG.search(line[:1024])):
            names = [logged["target"]] if logged["target"] else []
            return filesystem.judge(setting, command, "EPERM", names, line)
        for reason in reasons or [n for n in ("unwritable", "unopened") if n in matches]:
            names = subjects.names(line, matches[reason].start, matches[reason].end)
            if not reasons:
                names = list(dict.fromkeys([*names, *subjects.absolute_names(line)]))
            if reason == "ENOENT" and _NODE.search(line[:1024]):
                names += self._packages([name for name in names if name[:1] not in "./"])
            if reason == "EBUSY":  # of the two names of a rename the message may have one
                names += [other for name in names for other in command.replaced_beside(name)]
            names = names[: subjects.MAX_NAMES]
            self._spend(names, line)
            denial = filesystem.judge(setting, command, reason, names, line)
            if denial is not None:
                return denial
            if reason in _MAY_LACK_NAME and not any("/" in name for name in names):
                return self._nameless(notes, reason, before)
        if "EACCES" in reasons:
            return filesystem.judge_shm(setting, before)
        return None

    def _packages(self, names: list[str]) -> list[str]:
        """Where node looks for packages. Beside the project's own there may be links to others. In
        a folder above they need one another, so that the folder of all of them is named."""
        found = [f"node_modules/{name}" for name in names]
        for folder in islice(folders_above(self.setting.working_directory), _MOST_ABOVE):
            above = posixpath.join(folder, "node_modules")
            if any(self.setting.host.exists(f"{above}/{name}") for name in names[:1]):
                return [*found, above]
        return found

    def _nameless(self, notes: LineNotes, reason: str, before: list[str]) -> Denial | None:
        """A reason without a path: the lines above have it, else the command line may."""
        if reason == "EROFS":
            above = subjects.context_names(before)[: subjects.MAX_NAMES]
            self._spend(above, "")
            denial = filesystem.judge(self.setting, self.command, reason, above, "")
            if denial is not None:
                return _less_sure(denial)
        notes.nameless.add(reason)
        return None

    def _spend(self, names: list[str], line: str) -> None:
        """Each name is looked for in the line and on the host, below every folder that it may
        be in."""
        paths = 1 + len(self.command.folders)
        self.steps += sum(len(line) + paths * (_PATH_STEPS + len(name)) for name in names)

    def _network(self, matches: dict[str, PhraseMatch], line: str) -> Denial | None:
        for reason in network.NETWORK_REASONS:
            if reason in matches:
                return network.judge(self.setting, reason, line)
        return None

    def _syscall(self, matches: dict[str, PhraseMatch], line: str) -> Denial | None:
        for reason in ("LeakSanitizer", "SIGSYS", "EPERM", "ENOSPC", "EACCES"):
            if reason in matches:
                denial = syscall.judge(self.setting, reason, line)
                if denial is not None:
                    return denial
        return None

    def _note(self, notes: LineNotes, matches: dict[str, PhraseMatch], line: str) -> None:
        notes.limits.update(limit for limit in TEXT_LIMITS if limit in matches)
        if "unopened" in matches and "unable to open database file" in line:
            notes.nameless.add(DATABASE)
        if not self.setting.network_restricted:
            return
        socket_refused = "EPERM" in matches and _SOCKET.search(line) is not None
        socket_refused = socket_refused and "unix" not in line  # a file, not a network
        if "lookup" in matches or "unreachable" in matches or socket_refused:
            notes.network = notes.network or network.host_port(line) is None


def _is_quoted(line: str) -> bool:
    """Whether the message is the subject of another one. `expected.txt` says nothing about that."""
    if _QUOTING.search(line) is None:
        return False
    for name in subjects.quoted_names(line):
        line = line.replace(name, " ")
    words = ["" if "/" in word or "." in word.strip(".:,") else word for word in line.split(" ")]
    return _QUOTING.search(" ".join(words)) is not None


def _less_sure(denial: Denial) -> Denial:
    if denial.confidence != "high":
        return denial
    return msgspec.structs.replace(denial, confidence="medium")
