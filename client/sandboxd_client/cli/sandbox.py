"""`sandboxctl sandbox create|list|forward|destroy`: sandboxes that many commands share.

They outlive this process: a sandbox ends when it is destroyed, when nothing ran in it for its
idle time, or with the daemon. `sandbox run` is `run` and lives there.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

from sandboxd_client.autostart import nobody_there
from sandboxd_client.cli.amounts import count, seconds
from sandboxd_client.cli.connect import connect, named_socket, nobody_listens, print_json
from sandboxd_client.cli.ids import refuse_command, sandbox_id
from sandboxd_client.cli.parse import Options, UsageError
from sandboxd_client.cli.plain_text import one_line, quote
from sandboxd_client.cli.request import policy
from sandboxd_client.cli.screen import columns, fail, say
from sandboxd_client.cli.start_notices import say_unprotected
from sandboxd_client.cli.status import age
from sandboxd_client.client import Client
from sandboxd_client.errors import DaemonNotRunning
from sandboxd_proto.errors import NotFound, SandboxdError
from sandboxd_proto.messages.sandbox import Forwarded, SandboxInfo, SandboxList


def create(options: Options) -> int:
    params = policy(options, os.environ)
    say_unprotected(options, params)
    params.pop("cwd", None)  # of each command
    idle = options.one("--idle")
    if idle is not None:
        params["idle_secs"] = seconds(idle, "--idle")
    if options.has("--name"):
        params["name"] = options.one("--name")
    with connect(options, may_start=True) as client:
        made = client.sandbox_create(**params)
    if options.has("--json"):
        print_json(made)
    else:
        print(made.sandbox)
    return 0


def list(options: Options) -> int:
    nothing = "no sandboxes; sandboxctl sandbox create makes one"
    try:
        with connect(options) as client:
            listed = client.sandbox_list()
    except DaemonNotRunning as error:
        if not nobody_there(error):
            raise
        listed = SandboxList(sandboxes=[])  # sandboxes end with their daemon
        if named_socket(options) is not None:
            nothing = nobody_listens(options)
    if options.has("--json"):
        print_json(listed)
    elif listed.sandboxes:
        width = max(len("NAME"), *(len(_name(item)) for item in listed.sandboxes))
        print(f"{'ID':<36} {'NAME':<{width}} {'BACKEND':<12} {'AGE':<6} RUNNING")
        for item in listed.sandboxes:
            print(_row(item, width))
    else:
        say(nothing)
    return 0


def forward(options: Options) -> int:
    if len(options.operands) != 2:
        raise UsageError("sandbox forward needs ID PORT", "see sandboxctl help sandbox forward")
    typed, port = options.operands
    with connect(options) as client:
        made = _forwarded(client, sandbox_id(client, typed), count(port, "PORT"), options)
    if options.has("--json"):
        print_json(made)
        return 0
    print(made.endpoint)
    if columns() is not None:
        say(_way_in(made.endpoint))
    return 0


def _forwarded(client: Client, sandbox: str, port: int, options: Options) -> Forwarded:
    """The one that leads there already, else a new one."""
    tcp = options.has("--tcp")
    for one in client.sandbox_get(sandbox).forwards:
        if one.port == port and one.endpoint.startswith("/") != tcp:
            return one
    return client.sandbox_forward(sandbox, port, "tcp" if tcp else "unix")


def _way_in(endpoint: str) -> str:
    if endpoint.startswith("/"):
        shown = f"curl --unix-socket {quote(endpoint)} http://localhost/"
        return f"only you can connect to it: {shown}; for a browser give --tcp"
    return f"http://{endpoint}/ leads there, for every user of this machine"


def unforward(options: Options) -> int:
    typed, wanted = options.operands[0], options.operands[1:]
    with connect(options) as client:
        sandbox = sandbox_id(client, typed)
        found = client.sandbox_get(sandbox).forwards
        chosen = [
            one
            for one in found
            if not wanted or wanted[0] in (one.forward, one.endpoint, str(one.port))
        ]
        if wanted and not chosen:
            raise UsageError(f"{wanted[0]} leads to no port of {typed}", _forwards(found))
        for one in chosen:
            client.sandbox_unforward(sandbox, one.forward)
    if options.has("--json"):
        print_json({"ended": [one.endpoint for one in chosen]})
    elif not chosen:
        say(f"no port of {typed} is forwarded")
    return 0


def _forwards(found: Sequence[Forwarded]) -> str:
    return f"there are: {', '.join(f'{one.port} ({one.endpoint})' for one in found) or 'none'}"


def destroy(options: Options) -> int:
    code = 0
    with connect(options) as client:
        for sandbox in options.operands:
            try:
                _destroy(client, sandbox)
            except SandboxdError as error:
                code = fail(error, json=options.has("--json"), options=options)
    if options.has("--json") and not code:
        print_json({})
    return code


def _destroy(client: Client, typed: str) -> None:
    try:
        client.sandbox_destroy(sandbox_id(client, typed))
    except NotFound:
        refuse_command(client, typed)
        raise


def _name(item: SandboxInfo) -> str:
    return one_line(item.name or "-")


def _row(item: SandboxInfo, width: int) -> str:
    made = age(max(0.0, time.time() * 1000 - item.created_ms))
    name = f"{_name(item):<{width}}"
    return f"{item.sandbox:<36} {name} {item.backend:<12} {made:<6} {item.executions}"
