"""Send the output log of a detached execution to a connection that attached to it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from sandboxd.supervisor.execution.output_log import LogEvent, OutputLog
from sandboxd_proto.messages import notifications as notes
from sandboxd_proto.messages.execute import StreamName

_NAMES: dict[type[Any], str] = {
    notes.Started: "execution/started",
    notes.Output: "execution/output",
    notes.DenialSeen: "execution/denial",
    notes.Exited: "execution/exited",
    notes.Progress: "execution/progress",
}


async def send_output_log(
    log: OutputLog, after: dict[StreamName, int], send: Callable[[str, LogEvent], Awaitable[None]]
) -> None:
    """Until the execution's end. `after`: the last piece of each stream that is not wanted."""
    number = 0
    while (found := await log.next_event(number)) is not None:
        number = found[0] + 1
        event = found[1]
        if isinstance(event, notes.Output) and event.seq <= after.get(event.stream, -1):
            continue
        await send(_NAMES[type(event)], event)
