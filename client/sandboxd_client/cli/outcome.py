"""What a result means to the shell: an exit code, and a few lines after the command.

The exit code is read off the exact outcome; it is a number of the shell only here, at the end.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import Any

TIMEOUT, REFUSED, SIGNALED = 124, 125, 128
# SIGHUP, SIGINT, SIGPIPE, SIGTERM; SIGUSR1 and SIGUSR2, which sandboxctl passes on.
_USUAL = (1, 2, 13, 15, 10, 12)
_ENDED = {
    "timeout": "its time was up",
    "memory": "it used more memory than it may",
    "cpu": "it used more CPU time than it may",
    "processes": "it started more processes than it may",
    "file_size": "it wrote a larger file than it may",
    "output_limit": "it printed more than it may",
    "isolation_lost": "the sandbox around it was changed from outside",
    "budget": "the session's budget is used up",
}


def exit_code(result: dict[str, Any]) -> int:
    outcome = result.get("outcome")
    if outcome == "exited":
        code = result.get("exit_code")
        return code if isinstance(code, int) else REFUSED
    if outcome in ("timeout", "budget"):  # of a budget only a time ends a command
        return TIMEOUT
    signal = result.get("signal")
    return SIGNALED + signal if isinstance(signal, int) else REFUSED


def describe_end(result: dict[str, Any]) -> str:
    """How a command ended, in one line."""
    from sandboxd_proto.amounts import shown_seconds

    outcome, signal = str(result.get("outcome")), result.get("signal")
    seconds = float(result.get("duration_ms") or 0) / 1000
    took = f"after {shown_seconds(round(seconds, 1 if seconds >= 1 else 3))}"
    if outcome == "exited":
        return f"it ended with exit code {result.get('exit_code')} {took}"
    if outcome == "signaled":
        return f"{_by_signal(signal)} {took}"
    if outcome == "cancelled":
        return f"it was cancelled {took}"
    return f"it was ended {took}: {_ENDED.get(outcome, outcome)}"


def sight(*, ended: bool, raw: bool, takes_input: bool) -> str:
    """What one sees of a command that is attached, and how to leave it."""
    if ended:
        return "it has ended; this is what it printed last:"
    if raw:
        return "attached; Ctrl-] leaves it running"
    reads = "what you type is its input" if takes_input else "it has no terminal and takes no input"
    return f"attached: what it prints is shown here; {reads}; Ctrl-C leaves it running"


def remarks(
    result: dict[str, Any], *, given: Collection[str] = (), hints: Collection[str] = (),
    typed: Collection[str] | None = None, told: Collection[dict[str, Any]] = (),
) -> list[str]:  # fmt: skip
    """The lines to print after the command: how it was ended, and what was denied.

    `given`: hosts of --net, which a remedy repeats and which need not be added again.
    `hints`: lines that will follow these. `typed`: the flags of a command in a sandbox that exists.
    `told`: denials that had a line while it ran.
    """
    denials = result.get("denials") or []
    lines = _ended(result, denials)
    denials = [_with_its_end(result, one) for one in denials if not _is_lost_isolation(result, one)]
    if denials:
        from sandboxd_client.cli.denial_lines import after_the_end

        lines += after_the_end(denials, given, hints, typed, told)
    return lines + _warnings(result)


def _with_its_end(result: dict[str, Any], denial: dict[str, Any]) -> dict[str, Any]:
    """A limit that ended the command: its message has only what was too much."""
    message = str(denial.get("message"))
    is_limit = denial.get("kind") == result.get("outcome") and denial.get("layer") == "limit"
    if not is_limit or not message.startswith("the command ") or "ended" in message:
        return denial
    return {**denial, "message": f"{message}, and was ended"}


def crash_lines(result: dict[str, Any]) -> list[str]:
    """For a command that a signal ended which people and pipes do not send: a shell would say so.
    A filter that ended it is among the denials."""
    signal = result.get("signal")
    if result.get("outcome") != "signaled" or not isinstance(signal, int) or signal in _USUAL:
        return []
    kinds = [denial.get("kind") for denial in result.get("denials") or []]
    if "syscall" in kinds:
        return []
    line = _by_signal(signal)
    if line.endswith("(SIGBUS)") and "file_size" not in kinds:
        line += (
            ". The kernel sends it also where a mapped file finds no room in /tmp or /dev/shm: "
            "--tmp-size and --shm-size set their sizes"
        )
    return [line]


def _by_signal(number: Any) -> str:
    from signal import Signals

    try:
        return f"it was ended by signal {number} ({Signals(number).name})"
    except ValueError:
        return f"it was ended by signal {number}"


def cancelled_lines(result: dict[str, Any]) -> list[str]:
    """For who runs it in the foreground, and did not cancel it."""
    if result.get("outcome") != "cancelled":
        return []
    return [
        "the command was cancelled from elsewhere: by sandboxctl kill or another client, or with "
        "its sandbox (sandboxctl sandbox destroy), its session or the daemon"
    ]


def beside_explanation(result: dict[str, Any]) -> list[str]:
    """The same lines where a table has the denials already."""
    denials = result.get("denials") or []
    lines = cancelled_lines(result) + crash_lines(result) + _ended(result, denials)
    if denials:
        from sandboxd_client.cli.denial_lines import after_moving

        lines += after_moving(denials)
    return lines + _warnings(result)


def _ended(result: dict[str, Any], denials: list[dict[str, Any]]) -> list[str]:
    """A limit that ended the command is among the denials, with what would raise it."""
    outcome = str(result.get("outcome"))
    if outcome == "budget":
        from sandboxd_client.cli.budget_words import used_up

        return [used_up(result.get("budget"))]
    for denial in denials:
        if _is_lost_isolation(result, denial):
            from sandboxd_client.cli.plain_text import one_line

            why = one_line(str(denial.get("message")))
            return [f"the command was ended: {why}; you can run it again"]
    if outcome not in _ENDED or outcome in [denial.get("kind") for denial in denials]:
        return []
    return [f"the command was ended: {_ENDED[outcome]}"]


def cut_off(result: dict[str, Any]) -> list[str]:
    """Warnings about captured output that is not whole, where no limit of the command says so."""
    if result.get("outcome") == "output_limit":
        return []
    return [
        f"{name} is cut off: the command printed {captured.get('bytes')} bytes, and at most 8 MiB "
        "of each stream are captured; without --json all of it is passed on"
        for name in ("stdout", "stderr")
        if (captured := result.get(name) or {}).get("truncated")
    ]


def _warnings(result: dict[str, Any]) -> list[str]:
    lines: list[str] = []
    if warnings := result.get("warnings"):
        from sandboxd_client.cli.denial_lines import in_flags
        from sandboxd_client.cli.plain_text import one_line

        lines += [f"warning: {one_line(in_flags(str(warning)))}" for warning in warnings]
    return lines


def _is_lost_isolation(result: dict[str, Any], denial: dict[str, Any]) -> bool:
    """Nothing was denied: the host changed below the command."""
    return result.get("outcome") == "isolation_lost" and denial.get("kind") == "sandbox_error"
