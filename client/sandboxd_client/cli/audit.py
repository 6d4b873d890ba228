"""`sandboxctl audit`: the trail of what ran, who decided and what was refused."""

from __future__ import annotations

import calendar
import sys
import time
from collections import deque
from collections.abc import Iterator
from textwrap import fill
from typing import Any

from sandboxd_client.cli.amounts import seconds
from sandboxd_client.cli.approver_connection import ApproverConnection, approver
from sandboxd_client.cli.connect import print_json, socket_path
from sandboxd_client.cli.parse import Options, UsageError
from sandboxd_client.cli.screen import columns, printable, say
from sandboxd_client.jsontext import dumps

Record = dict[str, Any]
PAGE = 500
_LAST = 50
_NOTHING: tuple[Any, ...] = (None, [], {}, "")


def main(options: Options) -> int:
    types = options.all("--type") or None
    with approver(options) as link:
        if options.has("--verify"):
            return _verify(link, options)
        since, most = _since(options.one("--since")), _most(options)
        shown: deque[Record] = deque(maxlen=most)
        last, found = "0", 0
        for record in _stored(link, types, options.one("--session")):
            last = str(record["seq"])
            if record["at"] < since:
                continue
            found += 1
            if most is None:
                _print(record, options)
            else:
                shown.append(record)
        for record in shown:
            _print(record, options)
    sys.stdout.flush()
    if most is not None and found > most and not options.has("--last"):
        say(f"the last {most} of {found} records; --last N or --last all shows more")
    if options.has("--follow"):
        _follow(options, types, last)
    return 0


def _most(options: Options) -> int | None:
    """How many of the last records are shown; None: all, as whoever says since when wants them."""
    text = options.one("--last")
    if text is None:
        return None if options.has("--since") or options.has("--json") else _LAST
    if text == "all":
        return None
    if not text.isascii() or not text.isdigit() or int(text) == 0:
        raise UsageError(f"--last cannot be {text!r}", "write a number, or all")
    return min(int(text), 1 << 30)


def _verify(link: ApproverConnection, options: Options) -> int:
    found = link.call("audit/verify")
    if options.has("--json"):
        print_json(found)
    elif found["ok"]:
        print(f"{found['records']} records, unbroken; head {found['head']['sha256']}")
    else:
        print(f"the chain is broken at record {found['broken_at']}")
    return 0 if found["ok"] else 1


def _stored(
    link: ApproverConnection, types: list[str] | None, session: str | None
) -> Iterator[Record]:
    params: dict[str, Any] = {"limit": PAGE}
    if types is not None:
        params["types"] = types
    if session is not None:
        params["session"] = session
    while True:
        page = link.call("audit/query", params)
        yield from page["records"]
        if page["next"] is None:
            return
        params["after"] = page["next"]


def _follow(options: Options, types: list[str] | None, after: str) -> None:
    wanted = options.one("--session")
    with ApproverConnection(socket_path(options), types=types or ["*"], after=after) as link:
        while True:
            while link.notifications:
                notice = link.notifications.popleft()
                if notice["method"] == "events/event":
                    record = notice["params"]["record"]
                    if wanted in (None, record["session"]):
                        _print(record, options)
            link.receive(None)


def _print(record: Record, options: Options) -> None:
    if options.has("--json"):
        print_json(record)
        return
    told = {name: value for name, value in record["data"].items() if value not in _NOTHING}
    data = " ".join(f"{name}={_shown(value)}" for name, value in told.items())
    about = printable(record["execution_id"] or record["session"] or "")
    line = f"{record['seq']:>6} {record['at']} {record['type']:<20} {about} {data}".rstrip()
    width = columns()
    if width is not None and len(line) > width:
        line = f"{line[:7]}{fill(line[7:], width - 7, break_on_hyphens=False)}"
        line = line.replace("\n", "\n" + " " * 7)
    print(line)


def _shown(value: Any) -> str:
    return printable(value if isinstance(value, str) else dumps(value).decode())


def _since(text: str | None) -> str:
    if text is None:
        return ""
    try:
        calendar.timegm(time.strptime(text[:10], "%Y-%m-%d"))
        return text
    except ValueError:
        pass
    try:
        ago = seconds(text, "--since")
    except UsageError as error:
        raise UsageError(error.message, "write a time like 5m, 1h or 2d, or 2026-01-31") from None
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(time.time() - ago))
