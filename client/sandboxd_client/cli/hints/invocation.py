"""Hints that fit the subcommand that was typed. Loaded only when there is one."""

from __future__ import annotations

import re

from sandboxd_client.cli.flags import RUN, SANDBOX_RUN
from sandboxd_client.cli.plain_text import quote

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from sandboxd_client.cli.parse import Options

# A line about an option that a program does not have.
_UNKNOWN = (
    rb"(?im)^(?=.*(?:unknown|unrecogni[sz]ed|ambiguous|invalid|illegal|unexpected|no such|"
    rb"not defined)).*%s(?![\w-])"
)
# What a sandbox is made with, and a command in it cannot be given.
_OF_CREATE = ("--read", "--write", "--net", "--ssh-agent")
# What it may do stays as it is, and a new one has nothing of it.
ANOTHER = "make another sandbox, with the flags of this one and"


def typed_prefix(options: Options | None) -> str:
    """The beginning of the command line, for one that runs a command in the same place."""
    name = options.command if options is not None and options.command else "run"
    sandbox = options.one("--sandbox") if options is not None else None
    if sandbox is None:
        return f"sandboxctl {name}"
    flag = "" if name == "sandbox run" else "--sandbox "
    return f"sandboxctl {name} {flag}{quote(sandbox)}"


def adapt_hint(hint: str, options: Options | None) -> str:
    """In a sandbox that exists: flags of the command that makes one."""
    if options is None or options.typed_in_sandbox is None:
        return hint
    for flag in _OF_CREATE:
        hint = hint.replace(f"add {flag}", f"{ANOTHER}: sandboxctl sandbox create {flag}")
    return hint


def misplaced_flag(options: Options, result: dict[str, Any]) -> str | None:
    """A flag of ours behind the command, which does not know it. Without its stderr (in a terminal)
    a denial tells, where the flag is what it proposes."""
    ours = {flag.name for flag in (SANDBOX_RUN if options.has("--sandbox") else RUN).flags}
    typed = [word.partition("=")[0] for word in options.operands[1:]]
    for flag in dict.fromkeys(word for word in typed if word in ours):
        if options.errors is None:
            is_misplaced = flag in _proposed(result)
        else:
            is_misplaced = bool(re.search(_UNKNOWN % re.escape(flag).encode(), options.errors))
        if is_misplaced:
            program = quote(options.operands[0])
            return f"{flag} stands behind {program} and went to it: write it before the command"
    return None


def _proposed(result: dict[str, Any]) -> list[str]:
    from sandboxd_client.cli.denial_lines import allowing_flags

    flags = [f for d in result.get("denials") or [] for f in allowing_flags(d.get("remedy"))]
    return [flag.partition(" ")[0] for flag in flags]
