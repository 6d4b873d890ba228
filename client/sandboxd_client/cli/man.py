"""`sandboxctl man [COMMAND]`: manual pages from the table that the parser reads."""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress

from sandboxd_client import __version__
from sandboxd_client.cli.flags import CommandSpec, Flag
from sandboxd_client.cli.help import EXIT_CODES, KEYS, has_keys, no_page_error, topic
from sandboxd_client.cli.parse import Options
from sandboxd_client.cli.plain_text import quote
from sandboxd_client.cli.screen import put, say
from sandboxd_client.cli.table import COMMANDS


def main(options: Options) -> int:
    if options.has("--install"):
        return _install()
    name = " ".join(options.operands)
    if name and name not in COMMANDS:
        raise no_page_error(name)
    text = page(COMMANDS[name]) if name else overview()
    if not options.has("--roff"):
        return _show(text, options.operands)
    print(text, end="")
    return 0


def _show(roff: str, words: list[str]) -> int:
    """Formatted by `man`, which pages it in a terminal and prints plain text elsewhere; the text of
    `help` where there is none that reads it."""
    elsewhere = None if os.isatty(1) else subprocess.PIPE
    with suppress(OSError):
        done = subprocess.run(
            ["man", "-l", "-"], input=roff.encode(), stdout=elsewhere, check=False
        )
        if done.returncode == 0:
            put(done.stdout or b"")
            return 0
    print(topic(words), end="")
    return 0


def _install() -> int:
    """`man` looks into share/man beside a bin folder of PATH, such as ~/.local/bin."""
    given = os.environ.get("XDG_DATA_HOME", "")
    data = given if os.path.isabs(given) else os.path.join(os.path.expanduser("~"), ".local/share")
    folder = os.path.join(data, "man", "man1")
    os.makedirs(folder, exist_ok=True)
    pages = {_title(command): page(command) for command in COMMANDS.values()}
    for name, text in {"sandboxctl": overview(), **pages}.items():
        with open(os.path.join(folder, f"{name}.1"), "w", encoding="utf-8") as file:
            file.write(text)
    print(f"{len(pages) + 1} pages in {folder}")
    root = os.path.dirname(folder)
    if not _is_searched(root):
        say("man does not look there yet. To have it look, also in ~/.profile:")
        say(f"    export MANPATH={quote(root)}:")
    return 0


def _is_searched(folder: str) -> bool:
    bins = {os.path.join(os.path.dirname(os.path.dirname(folder)), "bin")}
    in_path = bins & set(os.environ.get("PATH", "").split(os.pathsep))
    return bool(in_path) or folder in os.environ.get("MANPATH", "").split(os.pathsep)


def _title(command: CommandSpec) -> str:
    return f"sandboxctl-{command.name.replace(' ', '-')}"


def overview() -> str:
    text = _head("sandboxctl", "run commands in a sandbox that says what it denied")
    text += ".SH SYNOPSIS\n.B sandboxctl\n.I COMMAND\n[\\fIOPTION\\fR...]\n.SH COMMANDS\n"
    for command in COMMANDS.values():
        text += f".TP\n.B {_safe(command.name)}\n{_safe(command.summary)}\n"
    return text + _exit_codes()


def page(command: CommandSpec) -> str:
    text = _head(_title(command), command.summary)
    text += f".SH SYNOPSIS\n.B sandboxctl {_safe(command.name)}\n[\\fIOPTION\\fR...]"
    text += f" {_safe(command.operand)}\n" if command.operand else "\n"
    if command.examples:
        text += ".SH EXAMPLES\n"
        for line, what in command.examples:
            text += f".TP\n\\fB{_safe(line)}\\fR\n{_safe(what)}\n"
    if command.flags:
        text += ".SH OPTIONS\n" + "".join(map(_flag, command.flags))
    if has_keys(command):
        text += _listed("KEYS", KEYS)
    return text + (_exit_codes() if command.greedy else "")


def _head(name: str, summary: str) -> str:
    title = _safe(name.upper())
    return (
        f'.TH "{title}" "1" "" "sandboxd {__version__}" ""\n'
        f".SH NAME\n{_safe(name)} \\- {_safe(summary)}\n"
    )


def _flag(flag: Flag) -> str:
    names = ", ".join(filter(None, (flag.short, flag.name)))
    value = f" \\fI{_safe(flag.value)}\\fR" if flag.value else ""
    choices = f" ({', '.join(flag.choices)})" if flag.choices and not flag.many else ""
    return f".TP\n\\fB{_safe(names)}\\fR{value}\n{_safe(flag.help + choices)}\n"


def _exit_codes() -> str:
    return _listed("EXIT STATUS", EXIT_CODES)


def _listed(heading: str, text: str) -> str:
    lines = text.splitlines()[1:]
    return f".SH {heading}\n.nf\n" + "".join(f"{_safe(line)}\n" for line in lines) + ".fi\n"


def _safe(text: str) -> str:
    """No character of the text is a request of roff, or missing in a terminal's ASCII."""
    text = text.replace("\\", "\\\\").replace("-", "\\-").replace("…", "...")
    return f"\\&{text}" if text.startswith((".", "'")) else text
