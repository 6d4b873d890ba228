"""Waiting for a command to end: the timeout, SIGTERM, then SIGKILL for the whole tree."""

from __future__ import annotations

import anyio

from sandboxd import event_loop
from sandboxd.supervisor.execution.control import ExecutionControl
from sandboxd.supervisor.execution.result import ENDED_EARLY, UNKNOWN_END
from sandboxd.types import TERM_GRACE_S, ExitReport, Process
from sandboxd_proto.errors import ExecFailed

GONE_GRACE_S = 0.005
SIGTERM = 15  # a number: Windows has no such signal, and its sandboxes ask in another way
KILL_GRACE_S = 5.0


async def wait_for_exit(
    process: Process, control: ExecutionControl, timeout_s: float | None, *, tree: bool
) -> ExitReport:
    """The exit report. Without `tree` a command's background processes may stay; a tree that was
    killed is waited for whole."""
    try:
        if control.ended_by is not None:
            process.kill()
        with event_loop.Deadline(timeout_s):
            report = await process.wait(tree=tree)
            return report if control.ended_by is None else await process.wait()
        control.ended_by = control.ended_by or control.at_timeout
        process.signal(SIGTERM, whole_tree=True)
        with event_loop.Deadline(TERM_GRACE_S):
            return await process.wait()
        process.kill()
        with event_loop.Deadline(KILL_GRACE_S):
            return await process.wait()
        return UNKNOWN_END
    except ExecFailed:
        if control.ended_by is None:
            raise
        return ENDED_EARLY
    except anyio.get_cancelled_exc_class():
        process.kill()
        raise


async def has_left_processes(process: Process) -> bool:
    """Whether the command left processes running, or did not report in time that it left none."""
    with event_loop.Deadline(GONE_GRACE_S):
        await process.wait()
        return False
    return True
