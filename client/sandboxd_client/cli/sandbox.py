"""`sandboxctl sandbox create|list|destroy`: sandboxes that many commands share.

They outlive this process: a sandbox ends when it is destroyed, when nothing ran in it for its
idle time, or with the daemon. `sandbox run` is `run` and lives there.
"""

from __future__ import annotations

import os
import time

from sandboxd_client.cli.amounts import seconds
from sandboxd_client.cli.parse import Options
from sandboxd_client.cli.request import policy
from sandboxd_client.cli.screen import fail
from sandboxd_client.cli.session import connect, print_json
from sandboxd_client.cli.status import age
from sandboxd_client.errors import DaemonNotRunning
from sandboxd_proto.errors import SandboxdError
from sandboxd_proto.messages.sandbox import SandboxInfo, SandboxList


def create(options: Options) -> int:
    params = policy(options, os.environ)
    params.pop("cwd", None)  # of each command
    idle = options.one("--idle")
    if idle is not None:
        params["idle_secs"] = seconds(idle, "--idle")
    with connect(options, may_start=True) as client:
        made = client.sandbox_create(**params)
    if options.has("--json"):
        print_json(made)
    else:
        print(made.sandbox)
    return 0


def list(options: Options) -> int:
    try:
        with connect(options) as client:
            listed = client.sandbox_list()
    except DaemonNotRunning:
        listed = SandboxList(sandboxes=[])  # sandboxes end with their daemon
    if options.has("--json"):
        print_json(listed)
    elif listed.sandboxes:
        print(f"{'ID':<36} {'BACKEND':<12} {'AGE':<6} RUNNING")
        for item in listed.sandboxes:
            print(_row(item))
    return 0


def destroy(options: Options) -> int:
    code = 0
    with connect(options) as client:
        for sandbox in options.operands:
            try:
                client.sandbox_destroy(sandbox)
            except SandboxdError as error:
                code = fail(error, json=options.has("--json"))
    if options.has("--json") and not code:
        print_json({})
    return code


def _row(item: SandboxInfo) -> str:
    made = age(max(0.0, time.time() * 1000 - item.created_ms))
    return f"{item.sandbox:<36} {item.backend:<12} {made:<6} {item.executions}"
