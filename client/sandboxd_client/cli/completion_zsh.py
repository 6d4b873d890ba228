"""Completion for zsh: a file `_sandboxctl` in a folder of $fpath, or `source <(…)`."""

from __future__ import annotations

from sandboxd_client.cli.table import COMMANDS, LISTED, Command, Flag

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
    if [[ $subcommand == sandbox ]]; then
        local -a actions
        actions=(
@ACTIONS@        )
        if (( CURRENT == 3 )); then
            _describe action actions
            return
        fi
        subcommand="sandbox $words[3]"
        shift words
        (( CURRENT-- ))
    fi
    shift words
    (( CURRENT-- ))
    case $subcommand in
@CASES@    esac
}
@LISTS@if [[ $funcstack[1] == _sandboxctl ]]; then
    _sandboxctl "$@"
else
    compdef _sandboxctl sandboxctl
fi
"""

_LIST = """\
_sandboxctl_@KIND@() {
    local -a ids
    ids=(${(f)"$(sandboxctl @COMMAND@ 2>/dev/null | sed 1d | cut -d' ' -f1)"})
    _describe @KIND@ ids
}
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
    names = {c.name: c.summary for c in COMMANDS.values() if " " not in c.name}
    names["sandbox"] = "make, list and end sandboxes for many commands"
    actions = {
        c.name.partition(" ")[2]: c.summary
        for c in COMMANDS.values()
        if c.name.startswith("sandbox ")
    }
    return (
        _SCRIPT.replace("@NAMES@", "".join(f"        {_row(*item)}\n" for item in names.items()))
        .replace("@ACTIONS@", "".join(f"            {_row(*item)}\n" for item in actions.items()))
        .replace("@LISTS@", "".join(map(_list, LISTED)))
        .replace("@CASES@", "".join(map(_case, COMMANDS.values())))
    )


def _row(name: str, summary: str) -> str:
    return f"'{name}:{_escaped(summary)}'"


def _list(kind: str) -> str:
    return _LIST.replace("@KIND@", kind).replace("@COMMAND@", LISTED[kind])


def _case(command: Command) -> str:
    specs = [_spec(flag) for flag in command.flags] + ["'--help[show help]'"]
    if command.greedy:
        first = 1
        if command.completes in LISTED:
            specs.append(f"'1:{command.completes}:_sandboxctl_{command.completes}'")
            first = 2
        specs += [f"'(-){first}:command:_command_names -e'", "'*::arguments:_normal'"]
    elif command.choices:
        specs.append(f"'1:{command.operand}:({' '.join(command.choices)})'")
    elif command.completes in LISTED:
        specs.append(f"'*:{command.completes}:_sandboxctl_{command.completes}'")
    body = " \\\n                ".join(specs)
    head = _AFTER_DASHES if command.greedy else ""
    label = f"        '{command.name}')\n{head}"
    return f"{label}            _arguments -S \\\n                {body} ;;\n"


def _spec(flag: Flag) -> str:
    repeat = "*" if flag.many else ""
    text = f"{repeat}{flag.name}[{_escaped(flag.help)}]"
    if flag.value:
        action = {"file": "_files", "dir": "_files -/", "signal": "_signals"}.get(
            flag.completes, ""
        )
        if flag.completes in LISTED:
            action = f"_sandboxctl_{flag.completes}"
        if flag.choices:
            action = f"({' '.join(flag.choices)})"
        text += f":{_escaped(flag.value)}:{action}"
    return f"'{text}'"


def _escaped(text: str) -> str:
    for character in "\\[]:":
        text = text.replace(character, "\\" + character)
    return text.replace("'", "'\\''")
