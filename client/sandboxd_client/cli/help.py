"""The text of `--help`, and suggestions for unknown words."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from shutil import which
from textwrap import wrap

from sandboxd_client.cli.flags import POLICY, CommandSpec, Flag
from sandboxd_client.cli.parse import Options, UsageError
from sandboxd_client.cli.table import COMMANDS, GROUPS

_WIDTH, _LEFT = 80, 25
_MOST_LISTED = 4  # commands in a hint

EXIT_CODES = """\
exit codes:
  the command's own, or 128+n when signal n ended it
  124  its --timeout passed, or the time of the session's budget was used up
  125  it was refused, an option is wrong, the daemon failed, or a limit or lost
       isolation ended it without a signal
  126  it was found but could not be executed
  127  it was not found
  130, 131  Ctrl-C or Ctrl-\\ ended it; sandboxctl then dies of the same signal,
       which ends a loop or script of the shell, too
  129, 143  sandboxctl was told to end by SIGHUP, SIGTERM: the command gets
       SIGTERM, and is ended 2 s later, or when sandboxctl is told again
  141  the reader of the output went away
  1  the output could not be written (also the command's own)
"""

KEYS = """\
keys in a terminal:
  Ctrl-C  interrupts the command; pressed again, it ends one that printed
          nothing since. Any other (an editor, a prompt) gets each Ctrl-C:
          Ctrl-\\ ends it, or sandboxctl kill in another terminal. With --no-pty
          or a pipe the second Ctrl-C ends every command
  Ctrl-Z  stops it, also vim or less; fg continues it. A prompt that takes keys
          one by one (Python's, a database's) does not stop: start such
          programs in sandboxctl shell, where Ctrl-Z is the shell's
"""


def main(options: Options) -> int:
    print(topic(options.operands), end="")
    return 0


def overview() -> str:
    rows = [(c.name, c.summary) for c in COMMANDS.values() if " " not in c.name]
    rows += [(f"{name} …", text) for name, text in GROUPS.items()]
    shown = "".join(f"  {name:<12}{text}\n" for name, text in rows)
    return (
        "sandboxctl: run commands in a sandbox that says what it denied\n\n"
        "usage: sandboxctl COMMAND [OPTION…]\n\n"
        "examples:\n"
        "  sandboxctl run make test          the repository here is writable, no network\n"
        "  sandboxctl run --net all ./fetch  with the network\n"
        "  sandboxctl shell                  look around inside\n\n"
        f"commands:\n{shown}\n"
        "sandboxctl help COMMAND tells more; sandboxctl --version tells the version\n"
    )


def group(name: str) -> str:
    """What there is to do with one kind of thing."""
    found = [c for c in COMMANDS.values() if c.name.startswith(f"{name} ")]
    width = max(len(c.name) for c in found) + 2
    rows = "".join(f"  {c.name:<{width}}{c.summary}\n" for c in found)
    return f"{GROUPS[name]}\n\nusage: sandboxctl {name} ACTION [OPTION…]\n\n{rows}"


def page(command: CommandSpec) -> str:
    usage = f"usage: sandboxctl {command.name} [OPTION…] {command.operand}".rstrip()
    text = f"{command.summary}\n\n{usage}\n"
    if command.examples:
        rows = (f"  {line}\n      {what}\n" for line, what in command.examples)
        text += "\nexamples:\n" + "".join(rows)
    if command.flags:
        text += "\noptions:\n" + "".join(map(_row, command.flags))
    if has_keys(command):
        text += f"\n{KEYS}"
    if command.greedy:
        text += f"\n{EXIT_CODES}"
    return text


def has_keys(command: CommandSpec) -> bool:
    """It shows one command in this terminal."""
    return command.name in ("run", "sandbox run")


def topic(words: list[str]) -> str:
    """`help`, `help run`, `help sandbox create`."""
    name = " ".join(words)
    if not name:
        return overview()
    if name in GROUPS:
        return group(name)
    if name not in COMMANDS:
        raise no_page_error(name)
    return page(COMMANDS[name])


def no_page_error(name: str) -> UsageError:
    """`help` and `man` run nothing: a name that is no command's is not taken for a program's."""
    hint = unknown_command(name)
    if not hint.startswith("did you mean"):
        hint = "sandboxctl help lists the commands"
    return UsageError(f"there is no command {name!r}", hint)


def _row(flag: Flag) -> str:
    left = f"{flag.short}, " if flag.short else "    "
    left += f"{flag.name} {flag.value}".rstrip()
    choices = "" if not flag.choices or flag.many else f" ({', '.join(flag.choices)})"
    repeat = " (may be repeated)" if flag.many and "repeated" not in flag.help else ""
    lines = wrap(f"{flag.help}{choices}{repeat}", _WIDTH - _LEFT)
    head = f"  {left:<{_LEFT - 3}} {lines[0]}\n"
    if len(left) > _LEFT - 3:
        head = f"  {left}\n{' ' * _LEFT}{lines[0]}\n"
    return head + "".join(f"{' ' * _LEFT}{line}\n" for line in lines[1:])


def unknown_command(name: str) -> str:
    """The nearest command, by what it is called elsewhere or by its letters."""
    if name in _ELSEWHERE:
        return f"did you mean {_ELSEWHERE[name]}?"
    group_name, _, action = name.partition(" ")
    if group_name in GROUPS:
        actions = [c.partition(" ")[2] for c in COMMANDS if c.startswith(f"{group_name} ")]
        near = get_close_matches(_ELSEWHERE_ACTIONS.get(action, action), actions, n=1, cutoff=0.6)
        if near:
            return f"did you mean {group_name} {near[0]}?"
        return f"{group_name} can {', '.join(actions)}"
    if name.startswith("-"):
        near = get_close_matches(name, ("--version", "--help"), n=1)
        return f"did you mean {near[0]}?" if near else "options come after the command's name"
    # A program's name that is only similar (make, image) is no mistake.
    known = [word for word in (*COMMANDS, *GROUPS) if word[:1] == name[:1]]
    near = get_close_matches(name, known, n=1, cutoff=0.65)
    near = near or [one for one in COMMANDS if one.endswith(f" {name}") and which(name) is None]
    if near:
        return f"did you mean {' or '.join(near)}?"
    return f"to run it in a sandbox: sandboxctl run -- {name}"


def unknown_choice(word: str, choices: Sequence[str]) -> str:
    if _MODES_ELSEWHERE.get(word) in choices:
        return f"that mode is {_MODES_ELSEWHERE[word]} here; no mode skips the sandbox"
    near = get_close_matches(word, choices, n=1)
    return f"did you mean {near[0]}?" if near else f"it is one of {', '.join(choices)}"


def unknown_flag(command: CommandSpec, name: str) -> str:
    known = _names(command.flags)
    if "--signal" in known and name.lstrip("-").isalnum() and not name.startswith("--"):
        return f"did you mean --signal {name.lstrip('-')}?"
    if command.name == "sandbox run" and (name in _names(POLICY) or _without(POLICY, name)):
        flag = _without(POLICY, name) or f"{name} …"
        return f"what a sandbox may do is said when it is made: sandboxctl sandbox create {flag}"
    if off := _without(command.flags, name):
        return f"did you mean {off}? It is the default"
    if name in _FLAG_ADVICE and (command.greedy or "--cpu" in known):
        return _FLAG_ADVICE[name]
    if _FLAGS_ELSEWHERE.get(name) in known:
        return f"did you mean {_FLAGS_ELSEWHERE[name]}?"
    long_names = (f.name for c in COMMANDS.values() for f in c.flags if f.short == name)
    if meant := next((one for one in long_names if one in known), None):
        return f"did you mean {meant}?"
    choosing = [f for f in command.flags if name.removeprefix("--") in (f.choices or ())]
    if choosing:
        return f"did you mean {choosing[0].name} {name.removeprefix('--')}?"
    flag, _, value = name.removeprefix("--").partition("-")
    if value and any(one.value for one in command.flags if one.name == f"--{flag}"):
        return f"did you mean --{flag} {value}?"
    if owners := [c.name for c in COMMANDS.values() if name in _names_of(c)]:
        return f"{name} is an option of {_listed(owners)}"
    # Without the dashes, which all have in common.
    near = get_close_matches(name.lstrip("-"), [one.lstrip("-") for one in known], n=1)
    if near:
        return f"did you mean --{near[0]}?"
    return f"see sandboxctl help {command.name}"


def _without(flags: Sequence[Flag], name: str) -> str | None:
    """`--net none` for --no-net or --no-network."""
    if not name.startswith("--no-"):
        return None
    named = name.replace("--no-", "--", 1)
    named = _FLAGS_ELSEWHERE.get(named, named)
    offers_none = (f.name for f in flags if "none" in f.choices or "none: " in f.help)
    return next((f"{one} none" for one in offers_none if one == named), None)


def _names(flags: Sequence[Flag]) -> list[str]:
    return [flag.name for flag in flags]


def _names_of(command: CommandSpec) -> list[str]:
    return [word for flag in command.flags for word in (flag.name, flag.short) if word]


def _listed(names: Sequence[str]) -> str:
    """`a, b and c`; of many the first ones."""
    if len(names) > _MOST_LISTED:
        names = [*names[:_MOST_LISTED], "others"]
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


# What other tools call it.
_ELSEWHERE = {
    "exec": "run", "start": "run --detach", "ls": "ps", "list": "ps", "top": "ps", "stop": "kill",
    "rm": "kill", "log": "logs", "info": "status", "version": "--version", "sh": "shell",
    "bash": "shell", "create": "sandbox create", "destroy": "sandbox destroy", "quit": "shutdown",
    "exit": "shutdown", "caches": "cache list", "settings": "config show", "why": "explain",
    "reload": "restart",
}  # fmt: skip
_ELSEWHERE_ACTIONS = {
    "ls": "list", "rm": "destroy", "delete": "destroy", "new": "create", "exec": "run",
    "clean": "prune", "clear": "prune",
}  # fmt: skip
_PORTS = "a port of a sandbox is reached with sandboxctl sandbox forward"
_MODES_ELSEWHERE = {
    "yolo": "force", "dangerously_skip_permissions": "force", "bypassPermissions": "force",
    "dangerously_skip_sandbox_and_permissions": "force", "dangerously-skip-permissions": "force",
    "accept_edits": "auto_edit", "acceptEdits": "auto_edit",
}  # fmt: skip
_VERBOSE = (
    "to show a folder add --read or --write; sandboxctl explain -- COMMAND says what it needs"
)
_CPUS = (
    "--cpu is CPU time. For one processor: -- taskset -c 0 COMMAND (for two: -c 0,1); max_cpus in "
    "a manifest limits containers"
)
_FLAG_ADVICE = {
    "-v": _VERBOSE,
    "--cpus": _CPUS,
    "--cpuset-cpus": _CPUS,
    "-p": _PORTS,
    "--publish": _PORTS,
    "--port": _PORTS,
}
_FLAGS_ELSEWHERE = {
    "--network": "--net", "--allow-net": "--net", "--mem": "--memory", "-m": "--memory",
    "--volume": "--write", "--rw": "--write", "--ro": "--read", "-i": "--pty",
    "-t": "--pty", "-it": "--pty", "--tty": "--pty", "-d": "--detach", "--background": "--detach",
    "--workdir": "--cwd", "--dir": "--workspace", "--environment": "--env", "--pids": "--processes",
    "--silent": "--quiet", "--allow-read": "--read", "--allow-write": "--write",
    "--lines": "--last", "-n": "--last", "--tail": "--last",
}  # fmt: skip
