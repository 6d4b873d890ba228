"""One line of output → the denials that it reports, and notes for the end.

Some wording is believable only once the exit is known, or needs a name from elsewhere: it becomes
a note. Everything else is decided here, while the command still runs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import msgspec

from sandboxd.denials import anatomy, filesystem, network, processes, syscalls
from sandboxd.denials.commandline import CommandLine
from sandboxd.denials.facts import Setting
from sandboxd.denials.foreign import SANDBOX_EXEC_LOG
from sandboxd.denials.limits import TEXT_LIMITS, TextLimit
from sandboxd.denials.phrases import Match, SignFinder
from sandboxd_proto.denial import Denial
from sandboxd_proto.messages.execute import StreamName

# A message that is itself the subject: a failed assertion about it, one side of a diff.
_QUOTING = re.compile(r"Assertion ?Error|^\s*FAIL(?:ED)?:|\bexpected\b|^[+-] |\bassert\b")
_ERRNO = ("EROFS", "EBUSY", "EACCES", "ENOENT", "EPERM")
_MAY_LACK_NAME = ("EROFS", "unwritable", "unopened")
_SOCKET = re.compile(r"\bsocket\b|\bsend(?:to|msg)\b|\bconnect\b|\bping\b|cap_net_raw")


@dataclass(slots=True)
class Notes:
    """What was read and not decided: `limits` by name, network errors without a host, and
    reasons about files that no name came with."""

    limits: set[TextLimit] = field(default_factory=set)
    network: bool = False
    nameless: set[str] = field(default_factory=set)


class Examiner:
    def __init__(self, setting: Setting, finder: SignFinder) -> None:
        self.setting = setting
        self.command = CommandLine(setting.argv)
        self.notes = Notes()
        self.hearsay = Notes()  # from stdout: believed only when the command failed
        self._finder = finder
        # Where stderr goes into stdout, what stands there is as good as on stderr.
        self._trusts_stdout = setting.pty or self.command.merges_stderr

    def examine(self, line: str, before: list[str], stream: StreamName) -> list[Denial]:
        """`before`: the few lines above, for messages that name their subject there."""
        matches = {match.name: match for match in self._finder.find(line)}
        if not matches or _QUOTING.search(line):
            return []
        if stream == "stderr" or self._trusts_stdout:
            self._note(self.notes, matches, line)
            return self._judge(self.notes, matches, line, before)
        # What is printed is data more often than errors are: a sentence about one does not count.
        self._note(self.hearsay, matches, line)
        if not any(anatomy.is_report(line, m.start, m.end) for m in matches.values()):
            return []
        return [_less_sure(d) for d in self._judge(self.hearsay, matches, line, before)]

    def _judge(
        self, notes: Notes, matches: dict[str, Match], line: str, before: list[str]
    ) -> list[Denial]:
        denial = (
            self._process(matches, line)
            or self._file(notes, matches, line, before)
            or self._network(matches, line)
            or self._syscall(matches, line)
        )
        return [denial] if denial is not None else []

    def _process(self, matches: dict[str, Match], line: str) -> Denial | None:
        setting = self.setting
        if "ESRCH" in matches:
            return processes.judge_pid(setting, self.command, line)
        if "no_new_privs" in matches:
            return processes.judge_privileges(line)
        if "ENOENT" in matches and "/proc/" in line:
            return processes.judge_proc(setting, line)
        if "missing_command" in matches or "ENOENT" in matches:
            return processes.judge_command(setting, line)
        return None

    def _file(
        self, notes: Notes, matches: dict[str, Match], line: str, before: list[str]
    ) -> Denial | None:
        setting, command = self.setting, self.command
        reasons = [name for name in _ERRNO if name in matches]
        if setting.platform == "darwin" and (logged := SANDBOX_EXEC_LOG.search(line)):
            names = [logged["target"]] if logged["target"] else []
            return filesystem.judge(setting, command, "EPERM", names, line)
        for reason in reasons or [n for n in ("unwritable", "unopened") if n in matches]:
            names = anatomy.names(line, matches[reason].start, matches[reason].end)
            if not reasons:
                names = [*names, *anatomy.absolute_names(line)]
            denial = filesystem.judge(setting, command, reason, names, line)
            if denial is not None:
                return denial
            if reason in _MAY_LACK_NAME and not any("/" in name for name in names):
                return self._nameless(notes, reason, before)
        return None

    def _nameless(self, notes: Notes, reason: str, before: list[str]) -> Denial | None:
        """A reason without a path: the lines above have it, else the command line may."""
        if reason == "EROFS":
            above = anatomy.context_names(before)
            denial = filesystem.judge(self.setting, self.command, reason, above, "")
            if denial is not None:
                return _less_sure(denial)
        notes.nameless.add(reason)
        return None

    def _network(self, matches: dict[str, Match], line: str) -> Denial | None:
        for reason in network.NETWORK_REASONS:
            if reason in matches:
                return network.judge(self.setting, reason, line)
        return None

    def _syscall(self, matches: dict[str, Match], line: str) -> Denial | None:
        for reason in ("SIGSYS", "EPERM", "ENOSPC"):
            if reason in matches:
                denial = syscalls.judge(self.setting, reason, line)
                if denial is not None:
                    return denial
        return None

    def _note(self, notes: Notes, matches: dict[str, Match], line: str) -> None:
        notes.limits.update(limit for limit in TEXT_LIMITS if limit in matches)
        if not self.setting.network_restricted:
            return
        socket_refused = "EPERM" in matches and _SOCKET.search(line) is not None
        if "lookup" in matches or "unreachable" in matches or socket_refused:
            notes.network = notes.network or network.endpoint(line) is None

    def remembered(self, *, failed: bool) -> Notes:
        """All notes when the command failed; else only those from where errors are printed."""
        if not failed:
            return self.notes
        return Notes(
            limits=self.notes.limits | self.hearsay.limits,
            network=self.notes.network or self.hearsay.network,
            nameless=self.notes.nameless | self.hearsay.nameless,
        )


def _less_sure(denial: Denial) -> Denial:
    if denial.confidence != "high":
        return denial
    return msgspec.structs.replace(denial, confidence="medium")
