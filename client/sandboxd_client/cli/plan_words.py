"""What plan mode keeps a command from, and how it is ended where it is set: in sessions, in the
daemon, by a flag."""

from __future__ import annotations

from sandboxd_client.cli.plain_text import quote

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import Any

    from sandboxd_client.cli.parse import Options

DAEMON = "user"  # what the daemon calls itself in place of a session
_ON = ". No change is proposed: plan mode is on ("
LEAVE = "end plan mode"  # of a hint, in the words of the shell


def way_out(flagged: Collection[str]) -> str:
    """An approver's commands. `flagged`: sessions, and DAEMON."""
    sessions = [quote(one) for one in flagged if one != DAEMON]
    commands = [f"sandboxctl plan off {' '.join(sessions)}"] if sessions else []
    commands += ["sandboxctl plan off"] if DAEMON in flagged else []
    return " and ".join(commands)


def hint(text: str, flagged: list[str], options: Options | None) -> str:
    """The hint of a refusal. A session of `run --plan` is the innermost one, and ends with it."""
    before, found, _ = text.partition(LEAVE)
    if not found:
        return text
    ways = []
    flag = _typed(options)
    if flag is not None:
        ways, flagged = [f"leave {flag} out"], flagged[1:]
    if flagged:
        ways.append(f"{LEAVE} as an approver: {way_out(flagged)}")
    return before + " and ".join(ways) if ways else text


def after_run(options: Options, result: dict[str, Any]) -> str | None:
    """The hint after a command that was denied something which nothing allows in plan mode."""
    found = (flagged_by(denial) for denial in result.get("denials") or [])
    flagged = next(filter(None, found), None)
    if flagged is None:
        return None
    return f"plan mode allows nothing more: {hint(LEAVE, flagged, options)}"


def flagged_by(denial: dict[str, Any]) -> list[str]:
    """Where plan mode is set, if that is why nothing is proposed."""
    _, found, rest = str(denial.get("message")).rpartition(_ON)
    flagged = rest.removesuffix(")").split(", ") if found and rest.endswith(")") else []
    # Before it stands a path, which is anything.
    ids = (one.removeprefix("se-").isalnum() for one in flagged)
    return flagged if all(ids) else []


def without_flags(message: str) -> str:
    """Their ids are in the hint."""
    if not flagged_by({"message": message}):
        return message
    return message.rpartition(_ON)[0] + _ON[:-2]


def _typed(options: Options | None) -> str | None:
    if options is None:
        return None
    if options.has("--plan"):
        return "--plan"
    return "--mode plan" if options.one("--mode") == "plan" else None
