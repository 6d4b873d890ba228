"""How the subcommands other than `run` reach the daemon, and how they print JSON."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import msgspec

from sandboxd_client import autostart
from sandboxd_client.cli.parse import Options
from sandboxd_client.cli.screen import put, say
from sandboxd_client.client import Client
from sandboxd_client.jsontext import printable
from sandboxd_proto.locations import default_socket


def socket_path(options: Options) -> str:
    return options.one("--socket") or default_socket()


def connect(
    options: Options, *, may_start: bool = False, note: Callable[[str], None] | None = None
) -> Client:
    """`may_start`: only for commands that make sense on a daemon that has just been started.
    `note`: gets the daemon's warnings; by default they are said."""
    path = socket_path(options)
    if may_start:
        autostart.open_connection(
            path, client="sandboxctl", may_start=not options.has("--no-autostart"),
            note=note or (lambda text: say_once(options, text)),
            started=lambda: say_started(options),
        ).close()  # fmt: skip
    return Client(path, autostart=False)


def named_socket(options: Options) -> str | None:
    """The socket that the user chose: a mistyped one is started silently otherwise."""
    return options.one("--socket") or os.environ.get("SANDBOXD_SOCKET") or None


def nobody_listens(options: Options) -> str:
    """Perhaps the path is mistyped."""
    named = named_socket(options)
    return "no daemon runs" if named is None else f"no daemon listens on {named}"


def say_once(options: Options, text: str) -> None:
    """A command may connect more than once."""
    if text not in options.told and not options.has("--quiet"):
        options.told.add(text)
        say(text)


def say_started(options: Options) -> None:
    named = named_socket(options)
    if named is not None and not options.has("--quiet"):
        where = "" if options.has("--socket") else " (SANDBOXD_SOCKET)"
        say(f"no daemon listened on {named}{where}; started one there")


def print_json(value: Any) -> None:
    put(printable(msgspec.json.encode(value)) + b"\n")
