"""`sandboxctl plan [on|off [ID…]]`: plan mode for every session of the daemon, or for some.

The daemon's flag stays over restarts. A session has a flag of its own, which the daemon's does not
change: it was opened with `--plan`, or set to it.
"""

from __future__ import annotations

from typing import Any

from sandboxd_client.cli.approval import ONE_COMMAND
from sandboxd_client.cli.approver_connection import ApproverConnection, approver
from sandboxd_client.cli.connect import print_json
from sandboxd_client.cli.parse import Options
from sandboxd_client.cli.plan_words import DAEMON, way_out
from sandboxd_client.cli.screen import printable, say

_ON_EVERYWHERE = "plan mode is on for every session"

_ON = "on: only sandboxes run in which nothing can be written (--preset read-only, no --net)"


def main(options: Options) -> int:
    return _change(options) if options.operands else _show(options)


def _show(options: Options) -> int:
    with approver(options) as link:
        everywhere = _is_on_everywhere(link)
        flagged = _flagged(link.call("session/list")["sessions"])
    if options.has("--json"):
        print_json({"plan": everywhere, "sessions": [one["session"] for one in flagged]})
        return 0
    state = "off, but not in every session" if flagged else "off"
    print(f"plan mode is {'on for every session' if everywhere else state}")
    for line in _own_flags(flagged):
        say(line)
    return 0


def _change(options: Options) -> int:
    on, named = options.operands[0] == "on", options.operands[1:]
    with approver(options) as link:
        changed = [link.call("session/update", {"session": one, "plan": on}) for one in named]
        changed = changed or [link.call("session/update", {"plan": on})]
        lines = _still_planning(link, named) if not on else []
    if options.has("--json"):
        print_json({"sessions": changed} if named else changed[0])
        return 0
    state = _ON if on else "off"
    if lines and not named:
        state = "off, but not in every session"
    for one in changed:
        whose = f"{one['session']}: " if named else ""
        print(f"{whose}plan mode is {state}")
    for line in lines:
        say(line)
    return 0


def _still_planning(link: ApproverConnection, named: list[str]) -> list[str]:
    """What the user may not expect after `off`."""
    sessions: list[dict[str, Any]] = link.call("session/list")["sessions"]
    flagged = _flagged(sessions)
    lines = []
    if named:
        above = _above(sessions, named)
        flagged = [one for one in flagged if one["session"] in above]
        if _is_on_everywhere(link):
            lines.append(f"{_ON_EVERYWHERE}, which ends with: {way_out([DAEMON])}")
    return lines + _own_flags(flagged)


def _is_on_everywhere(link: ApproverConnection) -> bool:
    return any(_ON_EVERYWHERE in warning for warning in link.call("status")["warnings"])


def _flagged(sessions: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A session of `run --plan` ends with its command."""
    return [one for one in sessions if one["plan"] and one["title"] != ONE_COMMAND]


def _own_flags(flagged: list[dict[str, Any]]) -> list[str]:
    if not flagged:
        return []
    titles = (
        f"{one['session']} {printable(one['title'] or one['name'] or '')}".rstrip()
        for one in flagged
    )
    return [
        f"by a flag of their own, these and all below them keep it: {', '.join(titles)}",
        f"to end it there: {way_out([one['session'] for one in flagged])}",
    ]


def _above(sessions: list[dict[str, Any]], named: list[str]) -> set[str]:
    """These sessions and all above them, which they are planning with."""
    parents = {one["session"]: one["parent"] for one in sessions}
    found: set[str] = set()
    for name in named:
        at: str | None = name
        while at is not None and at not in found:
            found.add(at)
            at = parents.get(at)
    return found
