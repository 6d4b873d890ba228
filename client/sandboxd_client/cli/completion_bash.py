"""Completion for bash: `source <(sandboxctl completion bash)`."""

from __future__ import annotations

from sandboxd_client.cli.table import COMMANDS, LISTED, Command, Flag

_SCRIPT = """\
# sandboxctl completion for bash: source <(sandboxctl completion bash)
_sandboxctl() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} command=${COMP_WORDS[1]}
    local i first=2
    COMPREPLY=()
    if (( COMP_CWORD == 1 )); then
        COMPREPLY=( $(compgen -W "@NAMES@ --help --version" -- "$cur") )
        return
    fi
    if [[ $command == sandbox ]]; then
        if (( COMP_CWORD == 2 )); then
            COMPREPLY=( $(compgen -W "@ACTIONS@ --help" -- "$cur") )
            return
        fi
        command="sandbox ${COMP_WORDS[2]}" first=3
    fi
    case $command in @GREEDY@)
        # From the first word that is neither a flag nor a flag's value on, it is another command.
        for (( i = first; i < COMP_CWORD; i++ )); do
            case ${COMP_WORDS[i]} in
                --) _sandboxctl_inner $(( i + 1 )); return ;;
                @VALUED@) (( i++ )) ;;
                -*) ;;
                *) [[ $command != "sandbox run" ]] || (( i++ ))
                   [[ ${COMP_WORDS[i]} != -- ]] || (( i++ ))
                   _sandboxctl_inner "$i"; return ;;
            esac
        done
    esac
    case $command in
@CASES@    esac
}
_sandboxctl_inner() {
    if declare -F _command_offset >/dev/null; then
        _command_offset "$1"
    elif (( COMP_CWORD == $1 )); then
        COMPREPLY=( $(compgen -c -- "${COMP_WORDS[COMP_CWORD]}") )
    else
        COMPREPLY=( $(compgen -f -- "${COMP_WORDS[COMP_CWORD]}") )
    fi
}
complete -o bashdefault -o default -F _sandboxctl sandboxctl
"""


def bash() -> str:
    names = dict.fromkeys(name.partition(" ")[0] for name in COMMANDS)
    actions = [name.partition(" ")[2] for name in COMMANDS if name.startswith("sandbox ")]
    greedy = [command for command in COMMANDS.values() if command.greedy]
    valued = dict.fromkeys(flag.name for c in greedy for flag in c.flags if flag.value)
    return (
        _SCRIPT.replace("@NAMES@", " ".join(names))
        .replace("@ACTIONS@", " ".join(actions))
        .replace("@GREEDY@", "|".join(f'"{command.name}"' for command in greedy))
        .replace("@VALUED@", "|".join(valued))
        .replace("@CASES@", "".join(map(_case, COMMANDS.values())))
    )


def _case(command: Command) -> str:
    values = "".join(_value(flag) for flag in command.flags if flag.value)
    words = [flag.name for flag in command.flags] + ["--help", *command.choices]
    lines = f'        "{command.name}")\n'
    if values:
        lines += f"            case $prev in\n{values}            esac\n"
    if command.completes in LISTED:
        reply = f"COMPREPLY=( {_ids(command.completes)} )"
        lines += f"            [[ $cur == -* ]] || {{ {reply}; return; }}\n"
    elif command.greedy:
        lines += '            [[ $cur == -* ]] || { _sandboxctl_inner "$COMP_CWORD"; return; }\n'
    return lines + f'            COMPREPLY=( $(compgen -W "{" ".join(words)}" -- "$cur") ) ;;\n'


def _ids(kind: str) -> str:
    listed = f'$(sandboxctl {LISTED[kind]} 2>/dev/null | sed 1d | cut -d" " -f1)'
    return f'$(compgen -W "{listed}" -- "$cur")'


def _value(flag: Flag) -> str:
    if flag.completes in LISTED:
        return f"                {flag.name}) COMPREPLY=( {_ids(flag.completes)} ); return ;;\n"
    action = {"file": "-f", "dir": "-d", "signal": "-A signal"}.get(flag.completes, "")
    if flag.choices:
        action = f'-W "{" ".join(flag.choices)}"'
    reply = f'COMPREPLY=( $(compgen {action} -- "$cur") ); ' if action else ""
    return f"                {flag.name}) {reply}return ;;\n"
