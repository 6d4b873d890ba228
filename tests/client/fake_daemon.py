"""A small daemon in a thread: a real Unix socket that speaks the protocol and runs commands.

It isolates nothing. It is here so that routing, cancelling, back-pressure and the terminal can be
tested alone, and so that a server can misbehave on purpose.
"""

from __future__ import annotations

import base64
import json
import os
import pty
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from terminal_screen import in_terminal

RESULT = {
    "outcome": "exited", "exit_code": 0, "signal": None, "duration_ms": 1.0,
    "usage": {"cpu_ms": 0.5, "max_rss_bytes": 1}, "denials": [], "backend": "fake",
    "enforcement": {},
}  # fmt: skip
Handler = Callable[["Connection", dict[str, Any], Any], Any]


class Answer(Exception):
    """An error answer."""

    def __init__(self, code: int, message: str, **data: Any) -> None:
        self.error = {"code": code, "message": message, "data": data}


def captured(data: bytes) -> dict[str, Any]:
    try:
        text, encoding = data.decode(), "utf-8"
    except UnicodeDecodeError:
        text, encoding = base64.b64encode(data).decode(), "base64"
    return {"data": text, "encoding": encoding, "bytes": len(data), "truncated": False}


class Command:
    """One real process, without any sandbox."""

    def __init__(self, connection: Connection, params: dict[str, Any], fds: list[int]) -> None:
        self.connection, self.params = connection, params
        self.cancelled = self.done = False
        self.out = {"stdout": b"", "stderr": b""}
        self.master = -1
        stdin = subprocess.PIPE if params.get("stdin_open") else subprocess.DEVNULL
        env = dict(params.get("manifest", {}).get("env", []))
        streams: dict[str, Any] = {"stdin": stdin, "stdout": subprocess.PIPE,
                                   "stderr": subprocess.PIPE}  # fmt: skip
        if params.get("pty"):
            self.master, slave = pty.openpty()
            self.resize(**params["pty"])
            params = {**params, "argv": in_terminal(params["argv"])}
            streams = dict.fromkeys(streams, slave)
        for name, index in params.get("fds", {}).items():
            streams[name] = fds[index]
        self.process = subprocess.Popen(
            params["argv"], cwd=params.get("cwd"), env=env, start_new_session=True, **streams
        )
        pipes = {"stdout": self.process.stdout, "stderr": self.process.stderr}
        self.readers = {name: pipe for name, pipe in pipes.items() if pipe is not None}
        if params.get("pty"):
            os.close(slave)
            self.readers = {"stdout": os.fdopen(self.master, "rb", buffering=0)}

    def resize(self, rows: int, cols: int, **_: Any) -> None:
        import fcntl
        import struct
        import termios

        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

    def write(self, data: bytes) -> None:
        if self.master >= 0:
            os.write(self.master, data)
        elif self.process.stdin:
            self.process.stdin.write(data)
            self.process.stdin.flush()

    def close_stdin(self) -> None:
        if self.process.stdin:
            self.process.stdin.close()

    def signal(self, number: Any) -> None:
        value = number if isinstance(number, int) else getattr(signal, f"SIG{number}")
        os.killpg(self.process.pid, value)

    def cancel(self) -> None:
        self.cancelled = True
        if not self.done:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)

    def _pump(self, name: str, reader: Any) -> None:
        while True:
            try:
                data = os.read(reader.fileno(), 65536)
            except OSError:
                data = b""
            if not data:
                return
            self.out[name] += (
                data if self.params.get("capture", not self.params.get("stream")) else b""
            )
            if self.params.get("stream"):
                sent = captured(data)
                self.connection.notify("execution/output", execution_id=self.params["execution_id"],
                                       stream=name, seq=0, data=sent["data"],
                                       encoding=sent["encoding"])  # fmt: skip

    def run(self) -> dict[str, Any]:
        id = self.params["execution_id"]
        if self.params.get("stream"):
            self.connection.notify("execution/started", execution_id=id, backend="fake")
        pumps = [threading.Thread(target=self._pump, args=item) for item in self.readers.items()]
        for pump in pumps:
            pump.start()
        code = self.process.wait()
        for pump in pumps:
            pump.join()
        self.done = True
        for reader in self.readers.values():
            reader.close()
        if self.process.stdin:
            with suppress(OSError):
                self.process.stdin.close()
        outcome = "cancelled" if self.cancelled else "signaled" if code < 0 else "exited"
        ended = {"outcome": outcome, "exit_code": code if outcome == "exited" else None,
                 "signal": -code if code < 0 else None}  # fmt: skip
        if self.params.get("stream"):
            self.connection.notify("execution/exited", execution_id=id, **ended)
        return {**RESULT, **ended, "execution_id": id, "stdout": captured(self.out["stdout"]),
                "stderr": captured(self.out["stderr"])}  # fmt: skip


class Connection(threading.Thread):
    def __init__(self, daemon: FakeDaemon, sock: socket.socket) -> None:
        super().__init__(daemon=True)
        self.owner, self.sock = daemon, sock
        self.lock = threading.Lock()
        self.gone = False

    def send(self, message: Any) -> None:
        raw = message if isinstance(message, bytes) else json.dumps(message).encode() + b"\n"
        with self.lock, suppress(OSError):
            self.sock.sendall(raw)

    def notify(self, method: str, **params: Any) -> None:
        self.send({"jsonrpc": "2.0", "method": method, "params": params})

    def run(self) -> None:
        try:
            for line, fds in self.lines():
                self.message(json.loads(line), fds)
        except (OSError, ValueError):  # reset, or closed under the reader's hands
            pass
        finally:
            self.owner.closed.set()
            with self.owner.starting:
                self.gone = True
                mine = [c for c in self.owner.commands.values() if c.connection is self]
            for command in mine:
                if not command.params.get("detach"):
                    command.cancel()
            self.sock.close()

    def lines(self) -> Iterator[tuple[bytes, list[int]]]:
        """Each line with the descriptors that came since the one before."""
        rest, fds = b"", list[int]()
        while True:
            data, more, _, _ = socket.recv_fds(self.sock, 1 << 16, 16)
            if not data:
                return
            *whole, rest = (rest + data).split(b"\n")
            fds += more
            for line in whole:
                yield line, fds
                fds = []

    def message(self, message: dict[str, Any], fds: list[int]) -> None:
        self.owner.seen.append(message)
        if message["method"] in ("execution/signal", "execution/resize"):
            self.serve(message, fds)  # their order matters
        else:
            threading.Thread(target=self.serve, args=(message, fds), daemon=True).start()

    def serve(self, message: dict[str, Any], fds: list[int]) -> None:
        self.owner.descriptors[message.get("id")] = fds
        try:
            self.answer(message)
        finally:
            for fd in self.owner.descriptors.pop(message.get("id"), []):
                os.close(fd)

    def answer(self, message: dict[str, Any]) -> None:
        id, params = message.get("id"), message.get("params") or {}
        try:
            handler = self.owner.handlers.get(message["method"])
            if handler is None:
                raise Answer(-32601, "there is no such method", kind="MethodNotFound")
            result = handler(self, params, id)
            reply = {"result": result}
        except Answer as answer:
            reply = {"error": answer.error}
        except (OSError, KeyError) as error:  # it ended meanwhile
            reply = {"error": {"code": -32005, "message": f"ended ({error!r})"}}
        if id is not None and reply.get("result", {}) is not None:
            self.send({"jsonrpc": "2.0", "id": id, **reply})


class FakeDaemon:
    def __init__(self, path: str) -> None:
        self.path = path
        self.seen: list[dict[str, Any]] = []
        self.commands: dict[str, Command] = {}
        self.requests: dict[Any, Command] = {}
        self.descriptors: dict[Any, list[int]] = {}
        self.closed = threading.Event()
        # A command that runs and is not listed yet would survive the end of its connection.
        self.starting = threading.Lock()
        self.handlers: dict[str, Handler] = {
            "initialize": lambda c, p, i: {
                "server": {"name": "fake", "version": self.version}, "protocol": 1,
                "backend": "fake", "presets": []},
            "status": lambda c, p, i: self.status,
            "execute": self.execute,
            "execution/write": self.write,
            "execution/close_stdin": lambda c, p, i: self.act(p, Command.close_stdin),
            "execution/signal": lambda c, p, i: self.act(p, Command.signal, p["signal"]),
            "execution/resize": lambda c, p, i: self.find(p).resize(**p) or {},
            "execution/cancel": lambda c, p, i: self.act(p, Command.cancel),
            "execution/list": lambda c, p, i: {"executions": [
                {"execution_id": k, "argv": v.params["argv"], "backend": "fake", "started_ms": 0.0,
                 "sandbox": None, "detached": True} for k, v in self.commands.items()]},
            "$/cancelRequest": lambda c, p, i: self.begun(self.requests, p["id"]).cancel(),
            "shutdown": lambda c, p, i: {},
        }  # fmt: skip
        self.version = "0.1.0"
        self.status: dict[str, Any] = {
            "version": self.version, "pid": os.getpid(), "uptime_ms": 5.0, "backend": "fake",
            "backends": [{"name": "fake", "available": True, "reason": None, "remedy": None,
                          "layers": ["nothing"]}],
            "executions": 0, "clients": 1, "sandboxes": {"warm": 0, "persistent": 0},
            "warnings": [], "landlock_abi": 7, "cgroup_version": 2, "bwrap_available": True,
        }  # fmt: skip
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(path)
        self.listener.listen(64)
        self.connections: list[Connection] = []
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self) -> None:
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            connection = Connection(self, sock)
            self.connections.append(connection)
            connection.start()

    def find(self, params: dict[str, Any]) -> Command:
        return self.begun(self.commands, params["execution_id"])

    def begun(self, commands: dict[Any, Command], key: Any) -> Command:
        """Each message has a thread: one that names a command may come before the command's own."""
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline:
            if key in commands:
                return commands[key]
            time.sleep(0.005)
        raise Answer(-32005, "there is no such execution", kind="NotFound")

    def act(
        self, params: dict[str, Any], action: Callable[..., None], *args: Any
    ) -> dict[str, Any]:
        action(self.find(params), *args)
        return {}

    def write(self, connection: Connection, params: dict[str, Any], id: Any) -> dict[str, Any]:
        data = params.get("data")
        raw = base64.b64decode(params["base64"]) if data is None else data.encode()
        try:
            self.find(params).write(raw)
        except (OSError, ValueError):
            raise Answer(-32005, "its stdin is closed", kind="NotFound") from None
        return {}

    def execute(self, connection: Connection, params: dict[str, Any], id: Any) -> dict[str, Any]:
        params.setdefault("execution_id", f"e{id}")
        fds = self.descriptors.pop(id, [])
        try:
            with self.starting:
                if connection.gone:
                    raise Answer(-32005, "the client is gone", kind="NotFound")
                command = Command(connection, params, fds)
                self.commands[params["execution_id"]] = self.requests[id] = command
        except OSError as error:
            raise Answer(-32004, f"{params['argv'][0]} cannot be executed: {error.strerror}",
                         kind="ExecFailed", errno=error.errno) from None  # fmt: skip
        finally:
            for fd in fds:
                os.close(fd)
        result = command.run()
        del self.commands[params["execution_id"]]
        return result

    def stop_listening(self) -> None:
        # Closing alone would leave the socket listening until accept() returns.
        with suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()

    def close(self) -> None:
        self.stop_listening()
        for connection in self.connections:
            with suppress(OSError):
                connection.sock.shutdown(socket.SHUT_RDWR)
        with self.starting:
            for connection in self.connections:
                connection.gone = True
            running = list(self.commands.values())
        for command in running:
            command.cancel()

    def methods(self) -> list[str]:
        return [message["method"] for message in self.seen]
