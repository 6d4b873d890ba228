"""`sandboxctl grants [remove ID]`: what was approved for a session or a workspace."""

from __future__ import annotations

import os
from textwrap import wrap
from typing import Any

from sandboxd_client.cli.approver_connection import approver
from sandboxd_client.cli.connect import print_json
from sandboxd_client.cli.parse import Options, UsageError
from sandboxd_client.cli.screen import columns, printable, say

_WIDTH = 80
_INDENT: dict[str, Any] = {"initial_indent": " " * 4, "subsequent_indent": " " * 4}
_WHERE = 24
_WORDS = {"fs_write_allow": "write", "fs_read_allow": "read"}


def main(options: Options) -> int:
    words = options.operands
    if words and (words[0] != "remove" or len(words) < 2):
        raise UsageError(f"grants does not know {words[0]!r}", "write sandboxctl grants remove ID")
    with approver(options) as link:
        for grant in words[1:]:
            link.call("grant/remove", {"grant": grant})
            if not options.has("--json"):
                say(f"removed {printable(grant)}")
        found = link.call("grant/list") if not words else {"grants": []}
    if options.has("--json"):
        print_json(found)
    elif found["grants"]:
        print(table(found["grants"], columns() or _WIDTH), end="")
    elif not words:
        say("nothing was approved for longer than once")
    return 0


def table(grants: list[dict[str, Any]], width: int) -> str:
    """One line each; what does not fit is on lines of its own."""
    rows = [("ID", "UNTIL", "WHERE", "WHAT"), *map(_row, grants)]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = []
    for row in rows:
        cells = [cell.ljust(size) for cell, size in zip(row, widths, strict=False)]
        line = "  ".join([*cells, row[3]]).rstrip()
        if len(line) <= width:
            lines.append(line)
        else:
            lines += ["  ".join(cells), *wrap(row[3], width, **_INDENT)]
    return "\n".join(lines) + "\n"


def _row(grant: dict[str, Any]) -> tuple[str, str, str, str]:
    where = _short(grant["workspace"] or grant["session"] or "")
    if len(where) > _WHERE:
        where = f"…{where[1 - _WHERE :]}"
    return grant["grant"], grant["expires"] or "its end", where, _what(grant)


def _what(grant: dict[str, Any]) -> str:
    add = grant["add"]
    if not add:
        return f"any command{_in_sandbox(grant.get('reach'))}"
    words = [f"{verb} {_short(p)}" for name, verb in _WORDS.items() for p in add.get(name, ())]
    network = add.get("network")
    hosts = network.get("hosts") or [network.get("kind")] if isinstance(network, dict) else []
    words += [f"net {printable(str(host))}" for host in hosts or ([network] if network else [])]
    known = (*_WORDS, "network")
    words += [f"{name} {printable(str(v))}" for name, v in add.items() if name not in known]
    return ", ".join(words)


def _in_sandbox(reach: dict[str, Any] | None) -> str:
    """What the sandbox can in which any command may run."""
    if reach is None:
        return ""
    words = [f"{verb} {_short(path)}" for verb in ("write", "read") for path in reach[verb]]
    network = reach["network"]
    hosts = [f"net {printable(host)}" for host in network.get("hosts") or ()]
    known = {"deny": "no network", "inherit": "net all"}
    return f" with {', '.join([*words, *(hosts or [known.get(network['kind'], '')])])}"


def _short(path: str) -> str:
    """With ~ for the home folder."""
    home = os.path.expanduser("~").rstrip("/")
    if home and (path == home or path.startswith(f"{home}/")):
        path = f"~{path[len(home) :]}"
    return printable(path)
