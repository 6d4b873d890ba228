"""Messages about processes and programs: a pid of the host, privileges, a hidden command."""

from __future__ import annotations

import posixpath
import re

from sandboxd.denials import remedies
from sandboxd.denials.context import Setting
from sandboxd.denials.rules.path_status import path_statuses
from sandboxd.denials.text.command_line import CommandLine
from sandboxd.policy.display_names import named
from sandboxd_proto.denial import Denial, Layer

# `kill: (12) - …`, `kill 12`, `pid 12`, `ptrace(PTRACE_SEIZE, 12)`, `kill: 12: …`
_PID = re.compile(
    r"\((\d{1,7})\)|\b(?:pid|process|kill|attach(?: to)?)[ :=]+(\d{1,7})\b|, (\d{1,7})\)"
    r"|: (\d{1,7}): ",
    re.IGNORECASE,
)
_PROC_PID = re.compile(r"/proc/(\d{1,7})(?:/|\b)")
_PRIVILEGED = re.compile(r"^\s*(?:\S*/)?(sudo|su|doas|pkexec|newuidmap|newgidmap|mount|passwd): ")
_COMMAND = (
    re.compile(r"(?:^|[:\s])([\w.+-]+): command not found\s*$"),  # bash
    re.compile(r"command not found: ([\w.+-]+)"),  # zsh
    re.compile(r"[Uu]nknown command:? ['‘\"]?([\w.+-]+)"),  # fish
    re.compile(r"exec: \"([\w.+-]+)\": executable file not found"),  # Go
    re.compile(r"(?:^|: )([\w.+-]+): not found\s*$"),  # dash
    re.compile(r"^(?:/usr/bin/)?env: ['‘\"]?([\w.+-]+)['’\"]?: No such file"),
)
_LISTENS = re.compile(r"\b(?:listen|bind)(?:ing)?\b", re.IGNORECASE)
_NETCAT = ("nc: ", "ncat: ", "netcat: ")
_PORT = re.compile(r"(?::|, |port )(\d{1,4})\b(?!:\d)")
_LAST_OF_ROOT = 1023
_DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"


def judge_pid(setting: Setting, command: CommandLine, line: str) -> Denial | None:
    """`No such process` about a process that does run, on the host."""
    spoken = [int(text) for found in _PID.findall(line) for text in found if text]
    for pid in spoken:
        if pid > 1 and setting.host.pid_exists(pid):
            return _invisible(pid)
    if not spoken:
        # Small numbers on a command line are mostly signals and counts.
        for pid in command.numbers:
            if pid > 99 and setting.host.pid_exists(pid):
                return _invisible(pid)
    return None


def judge_proc(setting: Setting, line: str) -> Denial | None:
    """A missing /proc/PID of a process that runs on the host."""
    match = _PROC_PID.search(line)
    if match is None:
        return None
    pid = int(match.group(1))
    return _invisible(pid) if pid > 1 and setting.host.pid_exists(pid) else None


def judge_privileges(line: str) -> Denial | None:
    """setuid has no effect: no_new_privs is set for every command."""
    match = _PRIVILEGED.match(line)
    if match is None:
        return None
    name = match.group(1)
    text = f"{named(name)} could not gain privileges: no sandboxed command can"
    return _process("exec", name, "supervisor", text)


def judge_listening(command: CommandLine, line: str, before: list[str]) -> Denial | None:
    """EACCES of bind(2). Python prints no port, and the call in a line above."""
    calls = any(".bind(" in text for text in (*before, command.text))
    unnamed = line.startswith(_NETCAT) or calls
    said = _LISTENS.search(line[:1024]) is not None
    ports = map(int, _PORT.findall(line[:1024])) if said else command.numbers
    port = next((one for one in ports if 0 < one <= _LAST_OF_ROOT), None)
    if port is None if said else not unnamed:
        return None
    text = (
        f"{f'port {port}' if port else 'a port'} could not be listened at: no command in a sandbox "
        f"can at ports below {_LAST_OF_ROOT + 1}, not even root's. Take a higher one"
    )
    return _process("listen", f"port {port}" if port else None, "namespace", text)


def judge_signing(setting: Setting) -> Denial | None:
    """Git's own message names no key: those of the user are hidden, where there are some."""
    home = dict(setting.plan.env).get("HOME", "")
    if not posixpath.isabs(home):
        return None
    for at in path_statuses(setting, posixpath.join(posixpath.normpath(home), ".gnupg")):
        if at.hidden or (at.masked and at.on_host):
            return Denial(
                kind="filesystem_read", operation="sign", target=at.path, layer="mount",
                evidence="policy", confidence="high", remedy=None,
                message=f"nothing could be signed: the keys in {named(at.path)} are secret, and no "
                "sandbox shows them",
            )  # fmt: skip
    return None


def judge_command(setting: Setting, line: str) -> Denial | None:
    """`command not found` about a program that PATH leads to on the host, where it is hidden."""
    name = next((m.group(1) for p in _COMMAND if (m := p.search(line)) is not None), None)
    if name is None:
        return None
    path = dict(setting.plan.env).get("PATH", _DEFAULT_PATH)
    for folder in path.split(":"):
        if not folder.startswith("/"):
            continue
        for at in path_statuses(setting, posixpath.normpath(posixpath.join(folder, name))):
            if at.hidden:
                return _hidden_program(setting, name, at.path)
    return None


def _hidden_program(setting: Setting, name: str, path: str) -> Denial:
    return Denial(
        kind="filesystem_read", operation="exec", target=path, layer="mount", evidence="policy",
        confidence="high", remedy=remedies.allow_read(setting, path),
        message=f"{named(name)} is installed at {named(path)}, which is not visible in the sandbox",
    )  # fmt: skip


def _invisible(pid: int) -> Denial:
    text = f"process {pid} runs on the host; a sandboxed command sees only its own processes"
    return _process("signal", str(pid), "namespace", text)


def _process(name: str, target: str | None, layer: Layer, text: str) -> Denial:
    # Every sandbox does this, so the plan is no evidence.
    return Denial(
        kind="process", operation=name, target=target, layer=layer, evidence="policy",
        confidence="medium", message=text, remedy=None,
    )  # fmt: skip
