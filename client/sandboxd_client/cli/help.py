"""The words of `--help`, and what to suggest for a word that is not in the table."""

from __future__ import annotations

from difflib import get_close_matches

from sandboxd_client.cli.table import COMMANDS, Command, Flag

EXIT_CODES = """\
exit codes:
  the command's own, or 128+n when signal n ended it
  124  its --timeout passed
  125  it was refused, the daemon failed, or a limit or lost isolation ended it without a signal
  126  it was found but could not be executed
  127  it was not found
  130  ended by a second Ctrl-C; 129, 143: sandboxctl was told to end by SIGHUP, SIGTERM
  141  whoever read the output went away
"""


def overview() -> str:
    rows = "".join(f"  {command.name:<17}{command.summary}\n" for command in COMMANDS.values())
    return (
        "sandboxctl: run commands in a sandbox that says what it denied\n\n"
        "usage: sandboxctl COMMAND [OPTION…]\n"
        "       sandboxctl run -- make test\n\n"
        f"commands:\n{rows}\n"
        "sandboxctl COMMAND --help tells more; sandboxctl --version tells the version\n"
    )


def group(name: str) -> str:
    """What there is to do with one kind of thing."""
    found = [c for c in COMMANDS.values() if c.name.startswith(f"{name} ")]
    rows = "".join(f"  {c.name:<17}{c.summary}\n" for c in found)
    return f"usage: sandboxctl {name} ACTION [OPTION…]\n\n{rows}"


def page(command: Command) -> str:
    usage = f"usage: sandboxctl {command.name} [OPTION…] {command.operand}".rstrip()
    text = f"{command.summary}\n\n{usage}\n"
    if command.flags:
        text += "\noptions:\n" + "".join(map(_row, command.flags))
    if command.greedy:
        text += f"\n{EXIT_CODES}"
    return text


def _row(flag: Flag) -> str:
    left = f"{flag.name} {flag.value}".rstrip()
    choices = "" if not flag.choices or flag.many else f" ({', '.join(flag.choices)})"
    repeat = " (may be repeated)" if flag.many and "repeated" not in flag.help else ""
    return f"  {left:<18} {flag.help}{choices}{repeat}\n"


def unknown_command(name: str) -> str:
    near = get_close_matches(name, COMMANDS, n=1, cutoff=0.7)
    if near:
        return f"did you mean {near[0]}?"
    if name.startswith("sandbox "):
        return "see sandboxctl sandbox --help"
    return f"to run it in a sandbox: sandboxctl run -- {name}"


def unknown_flag(command: Command, name: str) -> str:
    near = get_close_matches(name, [flag.name for flag in command.flags], n=1)
    if near:
        return f"did you mean {near[0]}?"
    return f"see sandboxctl {command.name} --help"
