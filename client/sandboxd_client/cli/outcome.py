"""What a result means to the shell: an exit code, and one line about what was denied.

The exit code is read off the exact outcome; it is a number of the shell only here, at the end.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import Any

TIMEOUT, REFUSED, SIGNALED = 124, 125, 128
_SHOWN = 4
_ENDED = {
    "timeout": "its time was up",
    "memory": "it used more memory than it may",
    "cpu": "it used more CPU time than it may",
    "processes": "it started more processes than it may",
    "file_size": "it wrote a larger file than it may",
    "output_limit": "it printed more than it may",
    "isolation_lost": "the sandbox around it was changed from outside",
}
_BLIND = (
    "it failed, and whether a file was denied is not known: its stdout and stderr are one pipe, "
    "which only its reader sees (to know, keep stderr apart: leave out 2>&1)"
)
_PLAIN = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-:@%+="
_VERBS = {
    "filesystem_read": "reading",
    "filesystem_write": "writing",
    "protected_path": "changing protected",
    "network": "connecting to",
    "syscall": "system call",
}


def exit_code(result: dict[str, Any]) -> int:
    outcome = result.get("outcome")
    if outcome == "exited":
        code = result.get("exit_code")
        return code if isinstance(code, int) else REFUSED
    if outcome == "timeout":
        return TIMEOUT
    signal = result.get("signal")
    return SIGNALED + signal if isinstance(signal, int) else REFUSED


def remarks(
    result: dict[str, Any], *, blind: bool = False, given: Collection[str] = ()
) -> list[str]:
    """The lines to print after the command: how it was ended, and what was denied.

    `blind`: the daemon did not see what the command printed. `given`: hosts of --net, which a
    remedy repeats and which need not be added again.
    """
    outcome, denials = str(result.get("outcome")), result.get("denials") or []
    lines = []
    # A limit that ended the command is among the denials, with what would raise it.
    if outcome in _ENDED and outcome not in [denial.get("kind") for denial in denials]:
        lines.append(f"the command was ended: {_ENDED[outcome]}")
    if denials:
        lines.append(_denied(denials, {f"--net {quoted(host)}" for host in given}))
    elif blind and outcome == "exited" and result.get("exit_code"):
        lines.append(_BLIND)
    return lines


def _denied(denials: list[dict[str, Any]], given: set[str]) -> str:
    what = list(dict.fromkeys(map(_what, denials)))
    flags = list(dict.fromkeys(flag for d in denials for flag in allowing(d.get("remedy"))))
    flags = [flag for flag in flags if flag not in given]
    shown = ", ".join(what[:_SHOWN])
    if len(what) > _SHOWN:
        shown += f" and {len(what) - _SHOWN} more (--json shows all)"
    return f"denied: {shown}" + (f"; to allow it add: {' '.join(flags)}" if flags else "")


def _what(denial: dict[str, Any]) -> str:
    kind, target = str(denial.get("kind")), denial.get("target")
    if kind == "network":
        target = _with_port(str(target or ""), denial.get("remedy")) or target
    if not target:
        return one_line(str(denial.get("message") or kind))
    return one_line(f"{_VERBS.get(kind, kind)} {target}")


def _with_port(host: str, remedy: Any) -> str | None:
    """The entry of the remedy that names the host with its port: the host alone may be allowed."""
    network = remedy.get("network") if isinstance(remedy, dict) else None
    hosts = network.get("hosts") or [] if isinstance(network, dict) else []
    return next((str(entry) for entry in hosts if str(entry).startswith(f"{host}:")), None)


def allowing(remedy: Any) -> list[str]:
    """The flags of `run` that stand for a remedy, which is a piece of manifest."""
    if not isinstance(remedy, dict):
        return []
    return [flag for field, value in remedy.items() for flag in _flags(field, value)]


def _flags(field: str, value: Any) -> list[str]:
    if field in ("fs_read_allow", "fs_write_allow"):
        name = "--read" if field == "fs_read_allow" else "--write"
        return [f"{name} {quoted(str(path))}" for path in value]
    if field == "network":
        if isinstance(value, dict):
            words = value.get("hosts") or [value.get("kind")]
            return [f"--net {quoted(str(word))}" for word in words]
        return [f"--net {quoted(str(value))}"]
    name = _NAMED.get(field, "")
    if isinstance(value, dict) and "secs" in value:
        value = value["secs"]
    if name:
        return [f"{name} {quoted(str(value))}"]
    return [one_line(f"(manifest: {field} = {value})")]


_NAMED = {
    "base": "--base",
    "syscall_policy": "--syscalls",
    "timeout": "--timeout",
    "max_memory_bytes": "--memory",
    "max_cpu_secs": "--cpu",
    "max_processes": "--processes",
}


def quoted(word: str) -> str:
    """For pasting into a shell. What the command chose cannot end the quotes or move the cursor."""
    if word and not word.strip(_PLAIN):
        return word
    return "'" + one_line(word).replace("'", "'\\''") + "'"


def one_line(text: str) -> str:
    """Control characters shown, not sent: a denied path may hold an escape sequence."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
