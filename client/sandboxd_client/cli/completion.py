"""`sandboxctl completion SHELL`: a stub for the shell. It asks `sandboxctl __complete`
(complete.py), which has the table."""

from __future__ import annotations

from sandboxd_client.cli.parse import Options

_BASH = """\
# sandboxctl completion for bash: source <(sandboxctl completion bash)
_sandboxctl() {
    local cur=${COMP_WORDS[COMP_CWORD]} line
    COMPREPLY=()
    [[ $cur == *[!:=]* ]] || cur=
    while IFS= read -r line; do
        case $line in
            :file) COMPREPLY+=( $(compgen -f -- "$cur") ) ;;
            :dir) COMPREPLY+=( $(compgen -d -- "$cur") ) ;;
            :signal) COMPREPLY+=( $(compgen -A signal -- "$cur") ) ;;
            :none) compopt +o default +o bashdefault 2>/dev/null ;;
            :command*) _sandboxctl_inner "${line#:command }" ;;
            ?*) COMPREPLY+=( "${line%%$'\\t'*}" ) ;;
        esac
    done < <(COMP_LINE=$COMP_LINE sandboxctl __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
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

_ZSH = """\
#compdef sandboxctl
# sandboxctl completion for zsh: source <(sandboxctl completion zsh), after compinit
_sandboxctl() {
    local line name; local -a found
    for line in ${(f)"$(sandboxctl __complete "${(@)words[2,CURRENT]}" 2>/dev/null)"}; do
        case $line in
            :file) _files ;;
            :dir) _files -/ ;;
            :signal) _signals ;;
            :none) ;;
            :command*)
                local first=${line#:command }
                shift $first words
                (( CURRENT -= first ))
                _normal ;;
            *)
                name=${line%%$'\\t'*}
                found+=("${name//:/\\\\:}:${line#*$'\\t'}") ;;
        esac
    done
    (( ! $#found )) || _describe sandboxctl found
}
if [[ $funcstack[1] == _sandboxctl ]]; then
    _sandboxctl "$@"
else
    compdef _sandboxctl sandboxctl
fi
"""

_FISH = """\
# sandboxctl completion for fish: sandboxctl completion fish | source
function __sandboxctl
    set -l words (commandline -opc)[2..-1] (commandline -ct)
    for line in (sandboxctl __complete $words 2>/dev/null)
        switch $line
            case :file
                __fish_complete_path (commandline -ct)
            case :dir
                __fish_complete_directories (commandline -ct)
            case :none
            case :signal
                __fish_make_completion_signals
            case ':command *'
                __fish_complete_subcommand --fcs-skip=(string replace ':command ' '' $line)
            case '*'
                echo $line
        end
    end
end
complete -c sandboxctl -f -a '(__sandboxctl)'
"""

STUBS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


def main(options: Options) -> int:
    print(STUBS[options.operands[0]], end="")
    return 0
