"""`sandboxctl ps`: the executions that can be reached from here (the detached ones)."""

from __future__ import annotations

import shlex
import time

from sandboxd_client.cli.parse import Options
from sandboxd_client.cli.session import connect, print_json
from sandboxd_client.cli.status import age
from sandboxd_client.errors import DaemonNotRunning
from sandboxd_proto.messages.execution import ExecutionInfo, ExecutionList


def main(options: Options) -> int:
    try:
        with connect(options) as client:
            listed = client.execution_list()
    except DaemonNotRunning:
        listed = ExecutionList(executions=[])  # no daemon, nothing runs
    if options.has("--json"):
        print_json(listed)
    elif listed.executions:
        print(f"{'ID':<28} {'BACKEND':<12} {'AGE':<6} COMMAND")
        for item in listed.executions:
            print(_row(item))
    return 0


def _row(item: ExecutionInfo) -> str:
    started = age(max(0.0, time.time() * 1000 - item.started_ms))
    command = shlex.join(item.argv)
    shown = "".join(c if c.isprintable() else "?" for c in command)
    return f"{item.execution_id:<28} {item.backend:<12} {started:<6} {shown}"
