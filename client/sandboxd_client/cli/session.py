"""How the subcommands other than `run` reach the daemon, and how they print JSON."""

from __future__ import annotations

from typing import Any

import msgspec

from sandboxd_client.cli.parse import Options
from sandboxd_client.cli.screen import put
from sandboxd_client.client import Client
from sandboxd_proto.locations import default_socket


def socket_path(options: Options) -> str:
    return options.one("--socket") or default_socket()


def connect(options: Options, *, may_start: bool = False) -> Client:
    """`may_start`: only for commands that make sense on a daemon that has just been started."""
    start = may_start and not options.has("--no-autostart")
    return Client(socket_path(options), autostart=start)


def print_json(value: Any) -> None:
    put(msgspec.json.encode(value) + b"\n")
