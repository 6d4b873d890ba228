"""`sandboxctl ps`: what runs now, of every client of this user; `--all`: what has ended, too."""

from __future__ import annotations

import shlex
import time

from sandboxd_client.autostart import nobody_there
from sandboxd_client.cli.connect import connect, named_socket, nobody_listens, print_json
from sandboxd_client.cli.ids import executions
from sandboxd_client.cli.parse import Options
from sandboxd_client.cli.screen import columns, say
from sandboxd_client.cli.status import age
from sandboxd_client.errors import DaemonNotRunning
from sandboxd_proto.messages.execution import ExecutionInfo, ExecutionList


def main(options: Options) -> int:
    nothing = "nothing runs"
    try:
        with connect(options) as client:
            nothing += "" if options.has("--all") else "; --all lists what has ended"
            listed = executions(client, ended=options.has("--all"))
    except DaemonNotRunning as error:
        if not nobody_there(error):
            raise
        listed = []  # no daemon, nothing runs
        if named_socket(options) is not None:
            nothing = nobody_listens(options)
    if options.has("--json"):
        print_json(ExecutionList(executions=listed))
    elif listed:
        width = max(len("ID"), *(len(item.execution_id) for item in listed))
        states = max(8, *(len(_state(item)) for item in listed))
        print(f"{'ID':<{width}} {'STATE':<{states}} {'AGE':<5} COMMAND")
        for item in listed:
            print(_row(item, width, states))
    else:
        say(nothing)
    return 0


def _state(item: ExecutionInfo) -> str:
    if item.state != "ended":
        return item.state
    if item.outcome == "exited":
        return f"exit {item.exit_code}"
    return f"signal {item.signal}" if item.outcome == "signaled" else item.outcome or "failed"


def _row(item: ExecutionInfo, width: int, states: int) -> str:
    started = age(max(0.0, time.time() * 1000 - item.started_ms))
    state = "detached" if item.detached and item.state == "running" else _state(item)
    command = shlex.join(item.argv)
    shown = "".join(c if c.isprintable() else "?" for c in command)
    row = f"{item.execution_id:<{width}} {state:<{states}} {started:<5} {shown}"
    most = columns()
    return row if most is None or len(row) <= most else f"{row[: most - 1]}…"
