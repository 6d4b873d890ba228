"""Refusals of sandbox-exec from the system's log, by the tag that every profile's rules carry.

Evidence of the kernel, but never complete: the kernel drops reports above some hundred a second,
and they may come late. Nothing depends on them.
"""

from __future__ import annotations

import json
import re

import msgspec

from sandboxd.macos.profile import TAG_PREFIX

PROGRAM = "/usr/bin/log"
MOST_KEPT = 100  # for each execution
# `Sandbox: NAME(PID) deny(1) OPERATION TARGET`. The name may hold anything, also parentheses.
_FIRST = re.compile(
    r"^(?:Sandbox: )?(?:(?P<count>\d+) duplicate reports? for )?(?P<name>.+?)"
    r"(?:\((?P<pid>\d+)\))? (?P<policy>System Policy: )?deny\(\d+\) "
    r"(?P<operation>[a-z][a-z0-9*-]*)(?: (?P<target>.*))?$"
)
_TAG = re.compile(re.escape(TAG_PREFIX) + r"[0-9a-f]{16,64}")


class LogDenial(msgspec.Struct, frozen=True):
    tag: str
    operation: str
    target: str
    program: str


def command() -> list[str]:
    return [
        PROGRAM, "stream", "--style", "ndjson", "--level", "debug",
        "--predicate", f'eventMessage CONTAINS "{TAG_PREFIX}"',
    ]  # fmt: skip


def parse(line: str | bytes) -> LogDenial | None:
    """One line of `log stream --style ndjson`; None for what is not a refusal of ours.

    Refusals of the system's own policy (TCC) look alike and are not the sandbox's. Some lines
    have no pid, so the tag alone says whose they are; it stands on a line of its own.
    """
    try:
        event = json.loads(line)
    except ValueError:
        return None
    text = event.get("eventMessage") if isinstance(event, dict) else None
    if not isinstance(text, str):
        return None
    first, _, rest = text.partition("\n")
    found = _FIRST.match(first)
    tag = next((word for word in rest.split() if _TAG.fullmatch(word)), None)
    if found is None or tag is None or found["policy"]:
        return None
    return LogDenial(tag, found["operation"], found["target"] or "", found["name"])


class LogBook:
    """The refusals of executions that are under way."""

    def __init__(self) -> None:
        self._found: dict[str, list[LogDenial]] = {}

    def open(self, tag: str) -> None:
        self._found[tag] = []

    def note(self, line: str | bytes) -> None:
        denial = parse(line)
        kept = self._found.get(denial.tag) if denial is not None else None
        if denial is None or kept is None or len(kept) >= MOST_KEPT or denial in kept:
            return
        kept.append(denial)

    def take(self, tag: str) -> list[LogDenial]:
        return self._found.get(tag, [])

    def close(self, tag: str) -> None:
        self._found.pop(tag, None)
