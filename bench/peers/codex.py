"""@openai/codex's Linux sandbox: its exec-server, kept running, or its command line."""

from __future__ import annotations

import itertools
import json
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.peers.peer import Peer, Run, Unusable, npm, spawning

PACKAGE = "@openai/codex"


def install(folder: Path) -> None:
    npm(folder, PACKAGE)


def _program(folder: Path) -> Path:
    """The program itself: the package's own entry starts node only to start this."""
    found = sorted(folder.glob("node_modules/@openai/codex*/vendor/*/*/codex"))
    if not found:
        raise Unusable("the npm package holds no program for this machine")
    return found[0]


@contextmanager
def opened_cli(folder: Path, workspace: Path) -> Iterator[Run]:
    with spawning([_program(folder), "sandbox", "--"], workspace) as run:
        yield run


class _Server:
    """JSON-RPC on the server's stdin and stdout."""

    def __init__(self, process: subprocess.Popen[bytes], workspace: Path) -> None:
        self._process = process
        self._ids = itertools.count(1)
        self._cwd = workspace.as_uri()
        self.call("initialize", {"clientName": "bench"})
        self._write({"method": "initialized", "params": {}})

    def run(self, argv: Sequence[str]) -> int:
        name = f"process-{next(self._ids)}"
        started = self.call("process/start", {
            "processId": name, "argv": list(argv), "cwd": self._cwd, "tty": False,
            "env": {"PATH": "/usr/local/bin:/usr/bin:/bin"}, "arg0": None,
            "sandbox": self._sandbox(),
        })  # fmt: skip
        if started["sandboxType"] == "none":
            raise Unusable("the exec-server ran the command without a sandbox")
        while True:
            message = self._read()
            if message.get("method") == "process/exited" and message["params"]["processId"] == name:
                return int(message["params"]["exitCode"])

    def _sandbox(self) -> dict[str, Any]:
        entries = [
            {"path": {"type": "special", "value": {"kind": "root"}}, "access": "read"},
            {"path": {"type": "path", "path": self._cwd}, "access": "write"},
        ]
        files = {"type": "restricted", "entries": entries}
        return {
            "permissions": {"type": "managed", "file_system": files, "network": "restricted"},
            "cwd": self._cwd, "windowsSandboxLevel": "disabled", "useLegacyLandlock": False,
            "windowsSandboxPrivateDesktop": False,
        }  # fmt: skip

    def call(self, method: str, params: dict[str, Any]) -> Any:
        number = next(self._ids)
        self._write({"id": number, "method": method, "params": params})
        while (message := self._read()).get("id") != number:
            pass
        if "error" in message:
            raise Unusable(f"{method}: {message['error']['message']}")
        return message["result"]

    def _write(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        self._process.stdin.flush()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise Unusable("the exec-server ended")
        message: dict[str, Any] = json.loads(line)
        return message


@contextmanager
def opened_server(folder: Path, workspace: Path) -> Iterator[Run]:
    command = [str(_program(folder)), "exec-server", "--listen", "stdio"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        cwd=workspace,
    ) as process:  # fmt: skip
        try:
            yield _Server(process, workspace).run
        finally:
            process.kill()


CLI = Peer(f"{PACKAGE}, codex sandbox", install, opened_cli)
SERVER = Peer(f"{PACKAGE}, exec-server", install, opened_server)
