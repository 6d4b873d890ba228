"""`sandboxctl __complete WORD…`: what the last word can become. The shells' stubs call this.

One candidate a line, with its description after a tab. A line that begins with `:` asks the shell
to complete by its own means: `:file`, `:dir`, `:signal`, or `:command N`, a command whose name is
word N. `:none`: by nothing, not even by names of files.

bash splits words at `:` and `=` (COMP_WORDBREAKS) and replaces the last part only. Its stub passes
COMP_LINE, by which they are joined here.
"""

from __future__ import annotations

import os

from sandboxd_client.cli.flags import CommandSpec, Flag
from sandboxd_client.cli.parse import Options
from sandboxd_client.cli.table import COMMANDS, GROUPS

_BREAKS = ":="
_LISTS = ("execution", "detached", "sandbox", "kept")


def main(words: list[str]) -> int:
    words = words or [""]
    joined, starts = _joined(words, os.environ.get("COMP_LINE", ""))
    there = len(joined[-1]) - (len(words[-1]) if words[-1].strip(_BREAKS) else 0)
    for line in candidates(joined):
        kind, _, number = line.partition(" ")
        if kind == ":command":
            line = f"{kind} {starts[int(number) - 1] + 1}"
        print(line if line.startswith(":") else line[there:])
    return 0


def _joined(words: list[str], line: str) -> tuple[list[str], list[int]]:
    """The words as they were typed in the line, and the number of the first part of each."""
    rest = "".join(line.split(maxsplit=1)[1:])
    found: list[str] = []
    starts: list[int] = []
    for index, word in enumerate(words):
        ends = (words[index - 1][-1:] + word[:1]) if index else ""
        if rest[:1].strip() and any(one in _BREAKS for one in ends):
            found[-1] += word
        else:
            found.append(word)
            starts.append(index)
        rest = rest.partition(word)[2] if word else rest
    return found, starts


def candidates(words: list[str]) -> list[str]:
    current = words[-1]
    if len(words) == 1:
        names = {c.name: c.summary for c in COMMANDS.values() if " " not in c.name}
        return _matching({**names, **GROUPS, "--help": "", "--version": ""}, current)
    name, given = words[0], words[1:]
    if name in GROUPS:
        if len(given) == 1:
            prefix = f"{name} "
            actions = {
                c.name.removeprefix(prefix): c.summary
                for c in COMMANDS.values()
                if c.name.startswith(prefix)
            }
            return _matching({**actions, "--help": ""}, current)
        name, given = f"{name} {given[0]}", given[1:]
    command = COMMANDS.get(name)
    return _of_command(command, given, len(words) - len(given)) if command is not None else []


def _of_command(command: CommandSpec, given: list[str], offset: int) -> list[str]:
    """`offset`: how many words come before those of the command itself."""
    current, index, operands, options = given[-1], 0, 0, Options(command.name)
    flags = {name: flag for flag in command.flags for name in (flag.name, flag.short) if name}
    while index < len(given) - 1:
        word = given[index]
        index += 1
        if word == "--":
            return [f":command {offset + index + 1}"] if command.greedy else []
        flag = flags.get(word)
        if flag is not None and flag.value:
            if index == len(given) - 1:
                return _of_value(flag, current, options)
            options.add(flag.name, given[index])
            index += 1
        elif not word.startswith("-"):
            operands += 1
            is_id = command.greedy and command.completes and operands == 1
            if command.greedy and not is_id:
                return [f":command {offset + index}"]
    name, is_given, value = current.partition("=")
    if is_given and name in flags:
        found = _of_value(flags[name], value, options)
        return [one if one.startswith(":") else f"{name}={one}" for one in found]
    if current.startswith("-"):
        shown = {flag.name: flag.help for flag in command.flags}
        return _matching({**shown, "--help": "show the help"}, current)
    if command.completes and (not command.greedy or operands == 0):
        return _of_kind(command.completes, current, options)
    if command.greedy:
        return [f":command {offset + len(given)}"]
    return _matching(dict.fromkeys(command.choices, ""), current)


def _of_value(flag: Flag, current: str, options: Options) -> list[str]:
    if flag.choices:
        return _matching(dict.fromkeys(flag.choices, ""), current)
    return _of_kind(flag.completes, current, options) if flag.completes else []


def _of_kind(kind: str, current: str, options: Options) -> list[str]:
    if kind == "command":
        return _matching({name: c.summary for name, c in COMMANDS.items()}, current)
    if kind in _LISTS:
        return _matching(_ids(kind, options), current) or [":none"]
    return [f":{kind}"]


def _ids(kind: str, options: Options) -> dict[str, str]:
    """Of the daemon that runs; none is started for a Tab. What is kept lies in the workspace."""
    try:
        if kind == "kept":
            from sandboxd_client.cli.kept import known as known_kept

            return known_kept(options)
        from sandboxd_client.cli.ids import known

        return known(kind)
    except Exception:
        return {}


def _matching(named: dict[str, str], current: str) -> list[str]:
    return [
        f"{name}\t{text}" if text else name
        for name, text in named.items()
        if name.startswith(current)
    ]
