"""Commands through the daemon, with the tests' raw client: what any client pays at least."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from support.daemon import Daemon
from support.rpc import Connection

from bench.measure import Row, Work
from bench.rows_baseline import COMMAND

Params = dict[str, Any]


@contextmanager
def execute(name: str, daemon: Daemon, policy: Params) -> Iterator[Row]:
    """`policy` holds preset, workspace or manifest: what the bare row was given too."""
    params = {**policy, "argv": [COMMAND]}
    with ExitStack() as connections:

        def worker() -> Work:
            connection = connections.enter_context(daemon.connect())
            return lambda: run(connection, params)

        yield Row(name, worker(), worker)


@contextmanager
def persistent(name: str, daemon: Daemon, policy: Params) -> Iterator[Row]:
    """One sandbox for one client: each worker works in a sandbox of its own."""
    with ExitStack() as held:

        def worker() -> Work:
            connection = held.enter_context(daemon.connect())
            sandbox = held.enter_context(live(connection, policy))
            params = {"sandbox": sandbox, "argv": [COMMAND]}
            return lambda: run(connection, params)

        yield Row(name, worker(), worker)


@contextmanager
def live(connection: Connection, policy: Params) -> Iterator[str]:
    sandbox: str = connection.call("sandbox/create", policy)["sandbox"]
    try:
        yield sandbox
    finally:
        connection.call("sandbox/destroy", {"sandbox": sandbox})


def run(connection: Connection, params: Params) -> None:
    result = connection.call("execute", params)
    if (result["outcome"], result["exit_code"]) != ("exited", 0):
        raise RuntimeError(f"the command did not succeed: {result}")


def command_line(daemon: Daemon, policy: Params) -> list[str]:
    with daemon.connect() as connection:
        words: list[str] = connection.call("manifest/check", policy)["command_line"]
        return words
