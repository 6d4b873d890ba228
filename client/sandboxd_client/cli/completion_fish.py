"""Completion for fish: `sandboxctl completion fish | source`."""

from __future__ import annotations

from sandboxd_client.cli.table import COMMANDS, Command, Flag

_HEAD = """\
# sandboxctl completion for fish: sandboxctl completion fish | source
function __sandboxctl_executions
    sandboxctl ps 2>/dev/null | sed 1d | cut -d' ' -f1
end
complete -c sandboxctl -f
"""


def fish() -> str:
    return _HEAD + "".join(_command(command) for command in COMMANDS.values())


def _command(command: Command) -> str:
    lines = [
        f"-n __fish_use_subcommand -a {command.name} -d {_quoted(command.summary)}",
        *(_flag(command, flag) for flag in command.flags),
        f"{_when(command)} -l help -d 'show help'",
    ]
    if command.greedy:
        lines.append(f"{_when(command)} -xa '(__fish_complete_subcommand --fcs-skip=2)'")
    if command.choices:
        lines.append(f"{_when(command)} -xa {_quoted(' '.join(command.choices))}")
    if command.completes == "execution":
        lines.append(f"{_when(command)} -xa '(__sandboxctl_executions)'")
    return "".join(f"complete -c sandboxctl {line}\n" for line in lines)


def _flag(command: Command, flag: Flag) -> str:
    line = f"{_when(command)} -l {flag.name.removeprefix('--')} -d {_quoted(flag.help)}"
    if not flag.value:
        return line
    if flag.choices:
        return f"{line} -xa {_quoted(' '.join(flag.choices))}"
    if flag.completes == "dir":
        return f"{line} -xa '(__fish_complete_directories)'"
    return f"{line} -rF" if flag.completes == "file" else f"{line} -x"


def _when(command: Command) -> str:
    return f"-n '__fish_seen_subcommand_from {command.name}'"


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
