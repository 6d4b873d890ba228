"""From a request that was sent to the exit code: relay the streams, then say what was denied."""

from __future__ import annotations

import sys

assert sys.platform != "win32"

from sandboxd_client.cli.execute import NOT_WRITTEN, is_advised  # noqa: E402 - after the platform is known
from sandboxd_client.cli.output import TerminalOutput  # noqa: E402
from sandboxd_client.cli.relay import Relay  # noqa: E402

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import Any

    from sandboxd_client.caller import Outgoing
    from sandboxd_client.cli.execute import Hear
    from sandboxd_client.cli.input import Input
    from sandboxd_client.cli.parse import Options
    from sandboxd_client.cli.raw_mode import RawMode
    from sandboxd_client.cli.streams import Streams
    from sandboxd_client.cli.terminal_approver import Asker

# Of a result: what lines are printed about.
_TOLD = ("denials", "warnings", "widening", "left_processes", "output_lost")


def start_relay(
    outgoing: Outgoing,
    params: dict[str, Any],
    streams: Streams,
    *,
    keys_kill: bool,
    live: Hear | None,
    ask: Asker | None,
) -> Relay:
    return Relay(
        outgoing,
        params["execution_id"],
        output=TerminalOutput(),
        input=_input(streams.raw) if streams.forwards_input else None,
        raw=_raw_mode() if streams.raw else None,
        pty=streams.pty,
        streams="stream" in params,
        own=streams,
        keys_kill=keys_kill,
        live=live,
        ask=ask,
    )


def _input(raw: bool) -> Input:
    from sandboxd_client.cli.input import Input

    return Input(raw=raw)


def _raw_mode() -> RawMode:
    from sandboxd_client.cli.raw_mode import RawMode

    return RawMode(0)


def report(result: dict[str, Any], options: Options, told: Collection[dict[str, Any]] = ()) -> int:
    """`told`: denials that had a line while it ran."""
    if _is_silent(result, options):
        return 0
    from sandboxd_client.cli import outcome

    if options.has("--json"):
        from sandboxd_client.cli.screen import put
        from sandboxd_client.jsontext import dumps, printable

        warnings = outcome.cut_off(result)
        if warnings:
            result = {**result, "warnings": [*(result.get("warnings") or []), *warnings]}
        put(printable(dumps(result)) + b"\n")
    elif not options.has("--quiet"):
        hints, typed = advice(options, result), options.typed_in_sandbox
        lines = outcome.cancelled_lines(result) + _crash_lines(result)
        given = options.hosts
        lines += outcome.remarks(result, given=given, hints=hints, typed=typed, told=told)
        hints += _before_that(options, result, [*lines, *hints])
        _say(lines, [*_offer(options, result), *hints])
    return exit_like_command(result)


def _is_silent(result: dict[str, Any], options: Options) -> bool:
    """It succeeded, and there is nothing to say: the usual end, which imports nothing more."""
    if result.get("outcome") != "exited" or result.get("exit_code") != 0:
        return False
    return not (any(map(result.get, _TOLD)) or options.has("--json") or is_advised(options))


def exit_like_command(result: dict[str, Any]) -> int:
    """The exit code; dies where the command died of a signal that the user sent it."""
    from sandboxd_client.cli import outcome, signals

    died = result.get("outcome") == "signaled"
    code = outcome.exit_code(result)
    if not code and result.get("output_lost"):  # of a closed stdout only we know
        code = NOT_WRITTEN
    return signals.exit_like(code, result.get("signal") if died else None)


def _crash_lines(result: dict[str, Any]) -> list[str]:
    from sandboxd_client.cli import outcome, signals

    return [] if signals.was_sent(result.get("signal")) else outcome.crash_lines(result)


def _say(denials: list[str], hints: list[str]) -> None:
    if not denials and not hints:
        return
    from sandboxd_client.cli.screen import say, say_denial

    for line in denials:
        say_denial(line)
    for line in hints:
        say(line)


def _offer(options: Options, result: dict[str, Any]) -> list[str]:
    if not result.get("widening") or options.has("--ask"):
        return []
    from sandboxd_client.cli.approval import offer

    line = offer(result, own_session=options.has("--mode") or options.has("--plan"))
    return [] if line is None else [line]


def _before_that(options: Options, result: dict[str, Any], lines: list[str]) -> list[str]:
    """Where something is to be done outside to protected files."""
    protected = any(one.get("kind") == "protected_path" for one in result.get("denials") or [])
    is_git = options.operands[:1] == ["git"]
    if not (protected or is_git) or not any(" outside" in line for line in lines):
        return []
    from sandboxd_client.cli.running import before_changes

    return before_changes(options)


def advice(options: Options, result: dict[str, Any]) -> list[str]:
    from sandboxd_client.cli import outcome

    found: list[str] = []
    if options.operands and (is_advised(options) or outcome.exit_code(result)):
        from sandboxd_client.cli.hints.advice import advise

        found = advise(options, result)
    if not result.get("left_processes") or any("sandbox create" in hint for hint in found):
        return found
    from sandboxd_client.cli.hints.left_processes import left_processes

    left = left_processes(result)
    return found if left is None else [*found, left]
