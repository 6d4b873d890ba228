"""Executions for tests: a request with the defaults filled in, and its result by attributes."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

from support.daemon import Daemon
from support.rpc import Connection, Message, RpcError


@dataclass(frozen=True, slots=True)
class Ran:
    """The result of `execute`, as it came (`raw`) and as tests read it."""

    raw: Message

    @property
    def outcome(self) -> str:
        return str(self.raw["outcome"])

    @property
    def exit_code(self) -> int | None:
        code: int | None = self.raw["exit_code"]
        return code

    @property
    def signal(self) -> int | None:
        number: int | None = self.raw["signal"]
        return number

    @property
    def stdout(self) -> str:
        return self.bytes_of("stdout").decode()

    @property
    def stderr(self) -> str:
        return self.bytes_of("stderr").decode(errors="replace")

    @property
    def enforcement(self) -> dict[str, str]:
        tiers: dict[str, str] = self.raw["enforcement"]
        return tiers

    @property
    def denials(self) -> list[Message]:
        found: list[Message] = self.raw["denials"]
        return found

    @property
    def story(self) -> str:
        """How it ended, in short, for the message of a failed assertion."""
        said = [denial["message"] for denial in self.denials]
        return f"{self.outcome} {self.exit_code} {self.signal} {said} {self.stderr[-500:]}"

    def bytes_of(self, stream: str) -> bytes:
        captured = self.raw[stream]
        if captured["encoding"] == "base64":
            return base64.b64decode(captured["data"])
        return str(captured["data"]).encode()

    def exited(self, code: int) -> bool:
        return self.outcome == "exited" and self.exit_code == code


class Runner:
    """Runs commands through one connection to a daemon."""

    def __init__(self, daemon: Daemon) -> None:
        self.daemon = daemon
        self._connection: Connection | None = None

    @property
    def connection(self) -> Connection:
        if self._connection is None:
            self._connection = self.daemon.connect(timeout_s=60.0)
        return self._connection

    def run(self, *argv: str, **params: Any) -> Ran:
        """RpcError when it was refused. `params` are those of `execute`."""
        try:
            return Ran(self.connection.call("execute", {"argv": list(argv), **params}))
        except RpcError as error:
            if error.kind == "InternalError":
                raise AssertionError(f"{error}\n{self.daemon.log}") from None
            raise

    def shell(self, script: str, *args: str, **params: Any) -> Ran:
        return self.run("sh", "-c", script, "sh", *args, **params)

    def check(self, **params: Any) -> Message:
        answer: Message = self.connection.call("manifest/check", params)
        return answer

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
