"""Completion for bash: `source <(sandboxctl completion bash)`."""

from __future__ import annotations

from sandboxd_client.cli.table import COMMANDS, Command, Flag

_SCRIPT = """\
# sandboxctl completion for bash: source <(sandboxctl completion bash)
_sandboxctl() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} command=${COMP_WORDS[1]}
    local i valued
    COMPREPLY=()
    if (( COMP_CWORD == 1 )); then
        COMPREPLY=( $(compgen -W "@NAMES@ --help --version" -- "$cur") )
        return
    fi
    if [[ $command == run ]]; then
        # From the first word that is neither a flag nor a flag's value on, it is another command.
        for (( i = 2; i < COMP_CWORD; i++ )); do
            case ${COMP_WORDS[i]} in
                --) _sandboxctl_inner $(( i + 1 )); return ;;
                @RUN_VALUED@) (( i++ )) ;;
                -*) ;;
                *) _sandboxctl_inner "$i"; return ;;
            esac
        done
    fi
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
    run = COMMANDS["run"]
    return (
        _SCRIPT.replace("@NAMES@", " ".join(COMMANDS))
        .replace("@RUN_VALUED@", "|".join(flag.name for flag in run.flags if flag.value))
        .replace("@CASES@", "".join(map(_case, COMMANDS.values())))
    )


def _case(command: Command) -> str:
    values = "".join(_value(flag) for flag in command.flags if flag.value)
    words = [flag.name for flag in command.flags] + ["--help", *command.choices]
    lines = f"        {command.name})\n"
    if values:
        lines += f"            case $prev in\n{values}            esac\n"
    if command.completes == "execution":
        lines += (
            "            [[ $cur == -* ]] || COMPREPLY=( $(compgen -W "
            '"$(sandboxctl ps 2>/dev/null | sed 1d | cut -d" " -f1)" -- "$cur") )\n'
            "            [[ $cur == -* ]] || return\n"
        )
    if command.greedy:
        lines += '            [[ $cur == -* ]] || { _sandboxctl_inner "$COMP_CWORD"; return; }\n'
    return lines + f'            COMPREPLY=( $(compgen -W "{" ".join(words)}" -- "$cur") ) ;;\n'


def _value(flag: Flag) -> str:
    action = {"file": "-f", "dir": "-d", "signal": "-A signal"}.get(flag.completes, "")
    if flag.choices:
        action = f'-W "{" ".join(flag.choices)}"'
    reply = f'COMPREPLY=( $(compgen {action} -- "$cur") ); ' if action else ""
    return f"                {flag.name}) {reply}return ;;\n"
