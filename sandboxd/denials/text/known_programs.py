"""Facts about single programs, from their manuals, for commands that print nothing.

Exit statuses that mean "the network" (curl -s, wget -q), what a program writes (cp … 2>/dev/null),
and the group of hosts that it asks when none is named (pip).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sandboxd.denials.text.command_line import Simple
from sandboxd.denials.text.outputs import outputs

_NETWORK_STATUS: dict[str, frozenset[int]] = {
    "curl": frozenset({5, 6, 7}),  # proxy or host not resolved, connection failed
    "wget": frozenset({4}),  # network failure
    "getent": frozenset({2}),  # the key was not found; asked of hosts below
    "dig": frozenset({9}),  # no reply from a server
    "ping": frozenset({2}),  # "other error"; 1 is a host that does not answer
    "ssh": frozenset({255}),
    "lynx": frozenset({1}),
}
_HOST_DATABASES = frozenset({"hosts", "ahosts", "ahostsv4", "ahostsv6"})


def says_network(command: Simple, exit_code: int | None) -> bool:
    if exit_code not in _NETWORK_STATUS.get(command.program, frozenset()):
        return False
    return command.program != "getent" or bool(_HOST_DATABASES & set(command.words))


_NEEDS_EXISTING = frozenset({"rm", "rmdir", "unlink", "chmod", "chown", "chgrp", "mv"})
_HARMLESS_IF_EXISTING = frozenset({"mkdir"})


def written(command: Simple) -> tuple[str, ...]:
    """What the program changes, and what its output is redirected to."""
    chosen = [each.path for each in outputs(command.program, command.words)]
    return (*chosen, *(path for path in command.writes_to if path != "/dev/null"))


def would_write(command: Simple, *, exists: bool) -> bool:
    """Whether the program touches an operand at all, as it stands on the host."""
    if command.program in _NEEDS_EXISTING:
        return exists
    return not (exists and command.program in _HARMLESS_IF_EXISTING)


# The group of hosts that a program asks when none is named, by its own configuration.
_GROUPS = {
    "pip": "python", "uv": "python", "poetry": "python", "npm": "node", "npx": "node",
    "pnpm": "node", "yarn": "node", "cargo": "rust", "go": "go",
}  # fmt: skip


# Programs that do nothing without the network.
NETWORK_PROGRAMS = frozenset(
    {"curl", "wget", "ssh", "scp", "sftp", "ftp", "telnet", "nc", "ncat", "dig", "host", "nslookup",
     "ping", "whois", "rsync", "lynx", "getent", "git", "pip"}
)  # fmt: skip
_NETWORK_WORDS = {
    "git": frozenset({"clone", "fetch", "pull", "push", "ls-remote"}),
    "pip": frozenset({"install", "download"}),
    "getent": _HOST_DATABASES,
}


def needs_network(command: Simple) -> bool:
    name = _program(command)
    words = _NETWORK_WORDS.get(name)
    return name in NETWORK_PROGRAMS and (words is None or bool(words & set(command.words)))


def host_group(command: Simple) -> str | None:
    return _GROUPS.get(_program(command))


def first_group(commands: Iterable[Simple]) -> str | None:
    return next(filter(None, map(host_group, commands)), None)


def _program(command: Simple) -> str:
    """The program's name without a version; pip also as a module of Python."""
    name = command.program.rstrip("0123456789.")
    if name == "python" and command.words[:2] == ("-m", "pip"):
        return "pip"
    return name if name in _GROUPS else command.program


# Programs that look for a newer version of themselves, whatever they were started for, and the
# first words after which they need the network for their work.
_UPDATE_CHECKERS: dict[str, frozenset[str]] = {
    "npm": frozenset(
        {"install", "i", "ci", "add", "update", "up", "view", "info", "audit", "publish", "search",
         "outdated", "exec", "login", "ping", "pack", "fund", "install-test", "it", "create"}
    ),
    "npx": frozenset(),
}  # fmt: skip


# These ask as well, and report nothing of it, while they install what lies on this machine.
_ASK_ASIDE = frozenset({*_UPDATE_CHECKERS, "pnpm", "yarn", "pip"})


def checks_for_updates(command: Simple) -> bool:
    """Whether a lookup may be no more than that: nothing that the command is for was refused."""
    work = _UPDATE_CHECKERS.get(command.program)
    if work is None:
        return False
    return not (set(command.words) & work) or "--offline" in command.words


def asks_aside(commands: Sequence[Simple]) -> bool:
    """Whether lookups tell nothing, where the command line succeeded and reports no failure."""
    others = [one for one in commands if one.silent or _program(one) not in _ASK_ASIDE]
    return len(others) < len(commands) and not any(
        one.silent or needs_network(one) for one in others
    )
