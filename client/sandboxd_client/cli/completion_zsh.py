"""Completion for zsh: a file `_sandboxctl` in a folder of $fpath, or `source <(…)`."""

from __future__ import annotations

from sandboxd_client.cli.table import COMMANDS, Command, Flag

_SCRIPT = """\
#compdef sandboxctl
# sandboxctl completion for zsh: source <(sandboxctl completion zsh), after compinit
_sandboxctl() {
    local -a subcommands  # `commands` is a special parameter that _normal needs
    subcommands=(
@NAMES@    )
    if (( CURRENT == 2 )); then
        _describe command subcommands
        return
    fi
    local subcommand=$words[2]
    shift words
    (( CURRENT-- ))
    case $subcommand in
@CASES@    esac
}
_sandboxctl_executions() {
    local -a ids
    ids=(${(f)"$(sandboxctl ps 2>/dev/null | sed 1d | cut -d' ' -f1)"})
    _describe execution ids
}
if [[ $funcstack[1] == _sandboxctl ]]; then
    _sandboxctl "$@"
else
    compdef _sandboxctl sandboxctl
fi
"""

_AFTER_DASHES = """\
            local dashes=${words[(i)--]}
            if (( dashes < CURRENT )); then
                shift $dashes words
                (( CURRENT -= dashes ))
                _normal
                return
            fi
"""


def zsh() -> str:
    names = "".join(f"        '{c.name}:{_escaped(c.summary)}'\n" for c in COMMANDS.values())
    return _SCRIPT.replace("@NAMES@", names).replace(
        "@CASES@", "".join(map(_case, COMMANDS.values()))
    )


def _case(command: Command) -> str:
    specs = [_spec(flag) for flag in command.flags] + ["'--help[show help]'"]
    if command.greedy:
        specs += ["'(-)1:command:_command_names -e'", "'*::arguments:_normal'"]
    elif command.choices:
        specs.append(f"'1:{command.operand}:({' '.join(command.choices)})'")
    elif command.completes == "execution":
        specs.append("'*:execution:_sandboxctl_executions'")
    body = " \\\n                ".join(specs)
    head = _AFTER_DASHES if command.greedy else ""
    return (
        f"        {command.name})\n{head}            _arguments -S \\\n                {body} ;;\n"
    )


def _spec(flag: Flag) -> str:
    repeat = "*" if flag.many else ""
    text = f"{repeat}{flag.name}[{_escaped(flag.help)}]"
    if flag.value:
        action = {"file": "_files", "dir": "_files -/", "signal": "_signals"}.get(
            flag.completes, ""
        )
        if flag.choices:
            action = f"({' '.join(flag.choices)})"
        text += f":{_escaped(flag.value)}:{action}"
    return f"'{text}'"


def _escaped(text: str) -> str:
    for character in "\\[]:":
        text = text.replace(character, "\\" + character)
    return text.replace("'", "'\\''")
