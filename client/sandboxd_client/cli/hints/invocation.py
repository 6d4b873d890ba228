"""Hints that fit the subcommand that was typed. Loaded only when there is one."""

from __future__ import annotations

from sandboxd_client.cli.plain_text import quote

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sandboxd_client.cli.parse import Options

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
