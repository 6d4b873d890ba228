#!/usr/bin/env python3
"""A stand-in for OpenSandbox's execd, written for these tests from the description of its API.

The real execd is a program of an image that cannot be had where these tests run. So what they show
about commands is shown with this stand-in only: its event stream, its exit codes (-1 for a
signal), output by lines, the end of a command's process group, and its files. It needs Python's
standard library alone, because it runs in the sandboxes of the tests too: `execd.py [PORT]`.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

PORT = 44772
PING_S = 3.0
TERM_GRACE_S = 1.0
Send = Callable[[dict[str, Any]], None]
# A child has copies of all descriptors until it executes its program: a copy of one that a program
# is written to makes the start of that program fail (ETXTBSY).
_fork_or_write = threading.Lock()


class Commands:
    """The commands of one sandbox. `prefix`: what starts them; `tmp`: the sandbox's /tmp."""

    def __init__(self, prefix: tuple[str, ...] = (), tmp: str = "/tmp") -> None:
        self.prefix = prefix
        self.tmp = tmp
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def run(self, body: dict[str, Any], send: Send) -> None:
        """One command to its end. Like execd, it goes on when its reader is gone."""
        identity = uuid4().hex
        try:
            process = self._start(body)
        except OSError as error:
            _try_to_send(send, {"type": "init", "text": identity})
            _try_to_send(send, _error(str(error)))
            return
        self._running[identity] = process
        _try_to_send(send, {"type": "init", "text": identity})
        events: queue.Queue[dict[str, Any] | None] = queue.Queue(1000)
        for name in ("stdout", "stderr"):
            reader = threading.Thread(target=_lines, args=(getattr(process, name), name, events))
            reader.daemon = True
            reader.start()
        open_streams, has_ended = 2, False
        while open_streams:
            try:
                event = events.get(timeout=PING_S)
            except queue.Empty:
                if has_ended:
                    break  # something in the background holds its output
                # What it has printed may still be on the way.
                has_ended = process.poll() is not None
                event = {"type": "ping", "text": "pong"}
            if event is None:
                open_streams -= 1
            else:
                _try_to_send(send, event)
        code = process.wait()
        self._running.pop(identity, None)
        _try_to_send(send, _end(code))

    def _start(self, body: dict[str, Any]) -> subprocess.Popen[bytes]:
        with _fork_or_write:
            return subprocess.Popen(
                self._argv(body), cwd=None if self.prefix else body.get("cwd") or None,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
                env={**os.environ, **(body.get("envs") or {})},
            )  # fmt: skip

    def _argv(self, body: dict[str, Any]) -> list[str]:
        if not self.prefix:
            return list(body["argv"])
        return [*self.prefix, "--chdir", body.get("cwd") or "/", "--", *body["argv"]]

    def place(self, path: str) -> str:
        """Where this machine has a path of the sandbox."""
        return self.tmp + path.removeprefix("/tmp") if path.startswith("/tmp/") else path

    def interrupt(self, identity: str) -> bool:
        process = self._running.get(identity)
        if process is None:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        threading.Timer(TERM_GRACE_S, self._kill, (process,)).start()
        return True

    def kill_all(self) -> None:
        for process in list(self._running.values()):
            self._kill(process)

    @staticmethod
    def _kill(process: subprocess.Popen[bytes]) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def _end(code: int) -> dict[str, Any]:
    if code == 0:
        return {"type": "execution_complete", "execution_time": 1}
    return _error(str(max(code, -1)))


def _error(value: str) -> dict[str, Any]:
    return {"type": "error", "error": {"ename": "CommandExecError", "evalue": value}}


def _try_to_send(send: Send, event: dict[str, Any]) -> None:
    with contextlib.suppress(OSError):
        send(event)


def _lines(pipe: Any, name: str, events: queue.Queue[dict[str, Any] | None]) -> None:
    with pipe:
        for line in pipe:
            text = line.decode(errors="replace").rstrip("\r\n")
            events.put({"type": name, "text": text or "\n"})
    events.put(None)


class ExecdHandler(BaseHTTPRequestHandler):
    """HTTP/1.0: the end of the connection is the end of the stream."""

    commands = Commands()

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        if path.endswith("/files/download"):
            self.download()
        else:
            self.answer(200 if path.endswith("/ping") else 404)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if urlsplit(self.path).path.endswith("/files/upload"):
            self.upload(body)
        else:
            self.run(json.loads(body))

    def upload(self, body: bytes) -> None:
        """A form with files in pairs: metadata, and content."""
        mark = b"--" + self.headers["Content-Type"].partition("boundary=")[2].encode()
        parts = [part.partition(b"\r\n\r\n") for part in body.split(mark)[1:-1]]
        names = [head.partition(b'name="')[2].split(b'"')[0] for head, _, _ in parts]
        if names != [b"metadata", b"file"] or not all(b"filename=" in one[0] for one in parts):
            self.answer(400, {"code": "INVALID_FILE", "message": f"these parts: {names}"})
            return
        metadata, content = (one[2].removesuffix(b"\r\n") for one in parts)
        given = json.loads(metadata)
        path = self.commands.place(given["path"])
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with _fork_or_write, open(path, "wb") as file:
            file.write(content)
        os.chmod(path, int(str(given["mode"]), 8))
        self.answer(200)

    def download(self) -> None:
        path = parse_qs(urlsplit(self.path).query)["path"][0]
        try:
            with open(self.commands.place(path), "rb") as file:
                data = file.read()
        except OSError as error:
            self.answer(404, {"code": "FILE_NOT_FOUND", "message": str(error)})
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def run(self, body: dict[str, Any]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        self.commands.run(body, self.event)

    def do_DELETE(self) -> None:
        identity = parse_qs(urlsplit(self.path).query).get("id", [""])[0]
        self.answer(200 if self.commands.interrupt(identity) else 404)

    def event(self, event: dict[str, Any]) -> None:
        self.wfile.write(json.dumps(event).encode() + b"\n\n")
        self.wfile.flush()

    def answer(self, status: int, body: object = None) -> None:
        data = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def main() -> None:
    port = int(sys.argv[1]) if len(sys.argv) > 1 else PORT
    server = ThreadingHTTPServer(("0.0.0.0", port), ExecdHandler)
    server.daemon_threads = True
    server.serve_forever()


if __name__ == "__main__":
    main()
