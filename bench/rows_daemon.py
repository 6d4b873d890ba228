"""Commands through the daemon, with the tests' raw client: what any client pays at least."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from support.daemon import Daemon
from support.rpc import Connection, RpcError

from bench.measure import Disturbed, Row, Work
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
            kept = held.enter_context(live(connection, policy))
            return lambda: kept.run([COMMAND])

        yield Row(name, worker(), worker)


class Kept:
    """A persistent sandbox, made anew when something on the host has ended it."""

    def __init__(self, connection: Connection, policy: Params) -> None:
        self._connection = connection
        self._policy = policy
        self.create()

    def create(self) -> None:
        self.name: str = self._connection.call("sandbox/create", self._policy)["sandbox"]

    def run(self, argv: Sequence[str]) -> None:
        try:
            run(self._connection, {"sandbox": self.name, "argv": list(argv)})
        except Disturbed:
            self.create()
            raise

    def close(self) -> None:
        with suppress(RpcError):  # it may have ended by itself
            self._connection.call("sandbox/destroy", {"sandbox": self.name})


@contextmanager
def live(connection: Connection, policy: Params) -> Iterator[Kept]:
    kept = Kept(connection, policy)
    try:
        yield kept
    finally:
        kept.close()


def run(connection: Connection, params: Params) -> None:
    """A mount that comes or goes on the host ends every sandbox that shows the place of it."""
    try:
        result = connection.call("execute", params)
    except RpcError as error:
        if error.kind in ("NotFound", "SandboxUnavailable"):
            raise Disturbed(error.message) from None
        raise
    if result["outcome"] == "isolation_lost":
        raise Disturbed(str(result["denials"]))
    if (result["outcome"], result["exit_code"]) != ("exited", 0):
        raise RuntimeError(f"the command did not succeed: {result}")


def command_line(daemon: Daemon, policy: Params) -> list[str]:
    with daemon.connect() as connection:
        words: list[str] = connection.call("manifest/check", policy)["command_line"]
        return words
