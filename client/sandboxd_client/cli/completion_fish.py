"""Completion for fish: `sandboxctl completion fish | source`."""

from __future__ import annotations

from sandboxd_client.cli.table import COMMANDS, LISTED, Command, Flag

_HEAD = """\
# sandboxctl completion for fish: sandboxctl completion fish | source
function __sandboxctl_ids
    sandboxctl $argv 2>/dev/null | sed 1d | cut -d' ' -f1
end
complete -c sandboxctl -f
complete -c sandboxctl -n __fish_use_subcommand -a sandbox -d 'sandboxes for many commands'
"""


def fish() -> str:
    return _HEAD + "".join(_command(command) for command in COMMANDS.values())


def _command(command: Command) -> str:
    lines = [
        _named(command),
        *(_flag(command, flag) for flag in command.flags),
        f"{_when(command)} -l help -d 'show help'",
    ]
    if command.greedy:
        skip = 4 if command.completes else 2
        lines.append(f"{_when(command)} -xa '(__fish_complete_subcommand --fcs-skip={skip})'")
    if command.choices:
        lines.append(f"{_when(command)} -xa {_quoted(' '.join(command.choices))}")
    if command.completes in LISTED:
        lines.append(f"{_when(command)} -xa '(__sandboxctl_ids {LISTED[command.completes]})'")
    return "".join(f"complete -c sandboxctl {line}\n" for line in lines)


def _named(command: Command) -> str:
    group, _, action = command.name.partition(" ")
    if not action:
        return f"-n __fish_use_subcommand -a {group} -d {_quoted(command.summary)}"
    others = " ".join(name.partition(" ")[2] for name in COMMANDS if name.startswith(f"{group} "))
    when = f"__fish_seen_subcommand_from {group}; and not __fish_seen_subcommand_from {others}"
    return f"-n '{when}' -a {action} -d {_quoted(command.summary)}"


def _flag(command: Command, flag: Flag) -> str:
    line = f"{_when(command)} -l {flag.name.removeprefix('--')} -d {_quoted(flag.help)}"
    if not flag.value:
        return line
    if flag.choices:
        return f"{line} -xa {_quoted(' '.join(flag.choices))}"
    if flag.completes in LISTED:
        return f"{line} -xa '(__sandboxctl_ids {LISTED[flag.completes]})'"
    if flag.completes == "dir":
        return f"{line} -xa '(__fish_complete_directories)'"
    return f"{line} -rF" if flag.completes == "file" else f"{line} -x"


def _when(command: Command) -> str:
    group, _, action = command.name.partition(" ")
    if action:
        seen = f"__fish_seen_subcommand_from {group}; and __fish_seen_subcommand_from {action}"
        return f"-n '{seen}'"
    return f"-n '__fish_seen_subcommand_from {group}; and not __fish_seen_subcommand_from sandbox'"


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
