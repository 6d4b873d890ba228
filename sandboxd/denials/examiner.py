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
_SOCKET = re.compile(r"\bsocket\b|\bsend(?:to|msg)\b|\bconnect\b|\bping\b|cap_net_raw")


@dataclass(slots=True)
class Notes:
    """What was read and not decided: `limits` by name, hostless network errors, nameless EROFS."""

    limits: set[TextLimit] = field(default_factory=set)
    network: bool = False
    read_only: bool = False


class Examiner:
    def __init__(self, setting: Setting, finder: SignFinder) -> None:
        self.setting = setting
        self.command = CommandLine(setting.argv)
        self.notes = Notes()
        self._finder = finder
        # Where stderr goes into stdout, what stands there is as good as on stderr.
        self._trusts_stdout = setting.pty or self.command.merges_stderr

    def examine(self, line: str, before: list[str], stream: StreamName) -> list[Denial]:
        """`before`: the few lines above, for messages that name their subject there."""
        matches = {match.name: match for match in self._finder.find(line)}
        if not matches or _QUOTING.search(line):
            return []
        self._note(matches, line)
        found = self._judge(matches, line, before)
        if stream == "stdout" and not self._trusts_stdout:
            return [_less_sure(denial) for denial in found]
        return found

    def _judge(self, matches: dict[str, Match], line: str, before: list[str]) -> list[Denial]:
        for judge in (self._process, self._file, self._network, self._syscall):
            denial = judge(matches, line, before)
            if denial is not None:
                return [denial]
        return []

    def _process(self, matches: dict[str, Match], line: str, _: list[str]) -> Denial | None:
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

    def _file(self, matches: dict[str, Match], line: str, before: list[str]) -> Denial | None:
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
            if reason == "EROFS" and not any("/" in name for name in names):
                return self._nameless(names, before)
        return None

    def _nameless(self, names: list[str], before: list[str]) -> Denial | None:
        """EROFS without a path: the lines above have it, else the command line may."""
        above = anatomy.context_names(before)
        denial = filesystem.judge(self.setting, self.command, "EROFS", above, "")
        if denial is None:
            self.notes.read_only = True
            return None
        return _less_sure(denial)

    def _network(self, matches: dict[str, Match], line: str, _: list[str]) -> Denial | None:
        for reason in network.NETWORK_REASONS:
            if reason in matches:
                return network.judge(self.setting, reason, line)
        return None

    def _syscall(self, matches: dict[str, Match], line: str, _: list[str]) -> Denial | None:
        for reason in ("SIGSYS", "EPERM", "ENOSPC"):
            if reason in matches:
                denial = syscalls.judge(self.setting, reason, line)
                if denial is not None:
                    return denial
        return None

    def _note(self, matches: dict[str, Match], line: str) -> None:
        for limit in TEXT_LIMITS:
            if limit in matches:
                self.notes.limits.add(limit)
        if not self.setting.network_restricted:
            return
        socket_refused = "EPERM" in matches and _SOCKET.search(line) is not None
        if "lookup" in matches or "unreachable" in matches or socket_refused:
            self.notes.network = self.notes.network or network.endpoint(line) is None


def _less_sure(denial: Denial) -> Denial:
    """Output is data more often than errors are."""
    if denial.confidence != "high":
        return denial
    return msgspec.structs.replace(denial, confidence="medium")
