"""`sandboxctl approve`: decide what waits, one at a time, oldest first.

The prompt is never replaced by another one. Keys pressed before it or in its first 400 ms are
dropped, and only the listed keys do anything: Enter, end of file, a closed terminal and a lost
connection decide nothing. What outlasts the command needs a letter and Enter: a single key may be
one that was typed for another program.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Any, Literal

from sandboxd_client.cli.approval import ONE_COMMAND
from sandboxd_client.cli.approver_connection import ApproverConnection, approver
from sandboxd_client.cli.connect import print_json
from sandboxd_client.cli.parse import Options, UsageError
from sandboxd_client.cli.prefix import unique
from sandboxd_client.cli.screen import printable, say
from sandboxd_proto.errors import Conflict, NotFound

if sys.platform == "win32":
    from sandboxd_client.cli.raw_mode_windows import SingleKeys, drop_typed
else:
    from sandboxd_client.cli.raw_mode import SingleKeys, drop_typed

Message = dict[str, Any]
# Of a question: the user left it undecided or typed Ctrl-C there, or it is no longer pending.
Outcome = Literal["allowed", "refused", "left", "interrupted", "over"]
DEAF_S = 0.4
INTERRUPT = "\x03"  # Ctrl-C
ENDS = ("", INTERRUPT, "\x04")  # the end of the input, Ctrl-C, Ctrl-D
_FLAGS = {"--once": "once", "--session": "session", "--always": "always"}
_KEYS = {"y": "once", "s": "session", "a": "always", "n": "deny"}
_LASTING = ("session", "always")
_ENTER = ("\r", "\n")
_ALWAYS_OFFERED = ("m no, with a message", "d details", "q quit")


def main(options: Options) -> int:
    if options.operands:
        return _decide_one(options)
    with approver(options) as link:
        if options.has("--list") or options.has("--json"):
            return _list(link, options)
        if not os.isatty(0):
            raise UsageError(
                "approve asks on a terminal, and stdin is none",
                "write sandboxctl approve ID --once, or --list",
            )
        return Queue(link).run()


def _list(link: ApproverConnection, options: Options) -> int:
    found = link.call("approval/list")["approvals"]
    if options.has("--json"):
        print_json(found)
        return 0
    for approval in found:
        print(f"{approval['approval']}  {approval['kind']:<8} {printable(approval['question'])}")
    if not found:
        say("nothing waits for an approval")
    return 0


def _decide_one(options: Options) -> int:
    chosen = [choice for flag, choice in _FLAGS.items() if options.has(flag)]
    message = None
    if options.has("--deny"):
        chosen.append("deny")
        message = " ".join(options.operands[1:]) or None
    elif len(options.operands) > 1:
        raise UsageError("approve decides one approval", "write sandboxctl approve ID --once")
    if len(chosen) != 1:
        raise UsageError(
            "say how to decide", "one of --once, --session, --always, --deny [MESSAGE]"
        )
    with approver(options) as link:
        found = _find(link, options.operands[0])
        decided = link.call("approval/decide", _decision(found, chosen[0], message))
    if options.has("--json"):
        print_json(decided)
    else:
        print(f"{decided['approval']}: {decided['state']}{_held_by(found, chosen[0])}")
    return 0


def _held_by(approval: Message, choice: str) -> str:
    if choice != "session" or approval.get("title") != ONE_COMMAND:
        return ""
    return ", for this command only: its session ends with it (--always: in the workspace)"


def _find(link: ApproverConnection, approval_id: str) -> Message:
    waiting: dict[str, Message] = {
        one["approval"]: one for one in link.call("approval/list")["approvals"]
    }
    found = waiting.get(unique(approval_id, list(waiting)))
    if found is None:
        raise NotFound(
            f"no approval {approval_id!r} waits",
            remedy="sandboxctl approve --list shows them; an ID's first four digits are enough",
        )
    return found


def _decision(approval: Message, choice: str, message: str | None) -> Message:
    params = {"approval": approval["approval"], "digest": approval["digest"], "choice": choice}
    return params if message is None else {**params, "message": message}


def decide_again(link: ApproverConnection, approval: Message) -> Outcome:
    """The same question as one that was allowed a moment ago."""
    say(f"allowed as before: {printable(approval['question'])}")
    try:
        decided = link.call("approval/decide", _decision(approval, "once", None))
    except (Conflict, NotFound):
        return "over"
    return "allowed" if decided["state"] == "allowed" else "refused"


class Queue:
    """The approvals that wait, and the one that is shown. `is_left`: whether it is to end although
    nothing was decided; it is asked when the descriptor `wake` is readable."""

    def __init__(
        self,
        link: ApproverConnection,
        *,
        wake: int | None = None,
        is_left: Callable[[], bool] = lambda: False,
    ) -> None:
        self._link = link
        self._wake, self._is_left = wake, is_left
        self._seen: set[str] = set()
        self._outcome: Outcome = "left"  # of the one that was shown last
        self._ended = ""  # why it is no longer pending

    def run(self) -> int:
        told = False
        while True:
            waiting = self._next()
            if waiting is not None:
                told = False
                if not self._prompt(waiting):
                    return 0
                continue
            if not told:
                print("sandboxctl: nothing waits for a decision (q ends)", file=sys.stderr)
                told = True
            if not self._wait():
                return 0

    def _next(self) -> Message | None:
        found = self._link.call("approval/list")["approvals"]
        self._link.notifications.clear()
        return next((one for one in found if one["approval"] not in self._seen), None)

    def _wait(self) -> bool:
        """False if the user ends it."""
        with SingleKeys() as keys:
            is_typed, is_told = keys.wait(self._link, None)
            if is_told:
                self._link.receive(0)
            return not is_typed or keys.read(64) not in ("q", *ENDS)

    def ask(self, approval: Message) -> Outcome:
        """One alone, for `run --ask`."""
        self._prompt(approval)
        return self._outcome

    def _prompt(self, approval: Message) -> bool:
        """Show one and wait for its key; False if the user ends the queue."""
        self._outcome = "left"
        show(approval)
        choices = {c["choice"]: c for c in approval["choices"]}
        if approval.get("title") == ONE_COMMAND:
            choices.pop("session", None)  # which ends with its command, as `once` does
        labels = {name: printable(choice["label"]) for name, choice in choices.items()}
        offered = {key: c for key, c in _KEYS.items() if c in choices}
        lines = [f"{_typed(key, c)} {labels[c]}" for key, c in offered.items()]
        while True:
            print("\n".join(f"  {one}" for one in (*lines, *_ALWAYS_OFFERED)))
            key = self._key(approval["approval"], {k: labels[c] for k, c in offered.items()})
            if key is None:
                print(f"  {self._ended}")
                self._outcome = "over"
                return True
            if key in ("q", ""):
                return False
            if key == "d":
                details(approval)
                continue
            message = None
            if key == "m":
                message = _typed_message()
                if message is None:
                    continue
            self._decide(approval, "deny" if key == "m" else offered[key], message)
            return True

    def _key(self, approval_id: str, labels: dict[str, str]) -> str | None:
        """A listed key, confirmed if it has to be; "" at the end of input; None if the approval is
        no longer pending. `labels`: of the keys that decide."""
        with SingleKeys() as keys:
            keys.wake = self._wake
            _drop_early()
            while True:
                typed = self._any_key(keys, approval_id)
                if typed in labels and _KEYS[typed] in _LASTING:
                    print(f"  {labels[typed]}: Enter confirms it, any other key does not")
                    second = self._any_key(keys, approval_id)
                    if second in _ENTER:
                        return typed
                    if second:
                        print("  not confirmed")
                        _drop_early()
                        continue
                    typed = second
                if not typed or typed in (*labels, "m", "d", "q"):
                    return typed

    def _any_key(self, keys: SingleKeys, approval_id: str) -> str | None:
        while True:
            is_typed, is_told = keys.wait(self._link, None)
            if self._is_left():
                return ""
            if is_told:
                self._link.receive(0)
                if self._is_resolved(approval_id):
                    return None
            if is_typed:
                typed = keys.read()
                if typed == INTERRUPT:
                    self._outcome = "interrupted"
                return "" if typed in ENDS else typed

    def _is_resolved(self, approval_id: str) -> bool:
        found = [n for n in self._link.notifications if n["method"] == "approval/resolved"]
        self._link.notifications.clear()
        ours = [one["params"] for one in found if one["params"]["approval"] == approval_id]
        if ours:
            self._ended = _why_resolved(ours[0])
        return bool(ours)

    def _decide(self, approval: Message, choice: str, message: str | None) -> None:
        self._seen.add(approval["approval"])
        try:
            decided = self._link.call("approval/decide", _decision(approval, choice, message))
            print(f"  {decided['state']}{_held_by(approval, choice)}")
            self._outcome = "allowed" if decided["state"] == "allowed" else "refused"
        except (Conflict, NotFound) as error:
            print(f"  not decided: {error}")
            self._outcome = "over"


def _typed(key: str, choice: str) -> str:
    return f"{key} and Enter:" if choice in _LASTING else key


def _drop_early() -> None:
    """Whatever was typed before the prompt could be read decides nothing."""
    time.sleep(DEAF_S)
    drop_typed()


def _why_resolved(approval: Message) -> str:
    reason = (approval.get("resolution") or {}).get("reason")
    if reason in ("cancelled", "requester_gone"):
        return "the command that asked has ended, so there is nothing to decide"
    if reason in ("timeout", "no_approver"):
        return "its time to be decided has passed"
    return "its session has ended" if reason == "session_closed" else "it was decided elsewhere"


def show(approval: Message) -> None:
    """The whole command, before the choices."""
    title = f" ({printable(approval['title'])})" if approval.get("title") else ""
    print(f"\n{printable(approval['client']['name'])}{title} asks:")
    print(f"  {printable(approval['question'])}")
    if approval.get("display"):
        print(f"  command: {printable(approval['display'])}")
        print(f"  in:      {printable(approval['cwd'] or '/')}")
    if approval.get("truncated"):
        print("  the command is longer than can be shown")
    for warning in approval.get("warnings", ()):
        print(f"  warning: {printable(warning)}")


def details(approval: Message) -> None:
    reach = approval.get("reach") or {}
    for name in ("write", "read"):
        for path in reach.get(name, ()):
            print(f"    {name}: {printable(path)}")
    network = reach.get("network") or {}
    if network:
        hosts = printable(" ".join(network.get("hosts", ())))
        print(f"    network: {network['kind']} {hosts}".rstrip())
    for denial in approval.get("because", ()):
        print(f"    because: {printable(denial.get('message', ''))}")
    print(f"    session: {approval['session']}, approval: {approval['approval']}")
    print(f"    digest:  {approval['digest']}")


def _typed_message() -> str | None:
    try:
        return input("  message: ").strip() or None
    except (EOFError, KeyboardInterrupt):
        print()
        return None
