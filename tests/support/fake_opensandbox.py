"""A lifecycle server of the tests' own, for faults that a real one does not show on demand.

Its sandboxes are not isolated: the stand-in execd runs their commands on this machine. It answers
as opensandbox-server 1.1.1 is known to.
"""

from __future__ import annotations

import json
import shutil
import ssl
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit
from uuid import uuid4

from support.execd import Commands, ExecdHandler

KEY = "the-key-of-the-tests"
KEY_HEADER = "OPEN-SANDBOX-API-KEY"


@dataclass
class FakeSandbox:
    body: dict[str, Any]
    state: str = "Running"
    renewed: int = 0
    id: str = field(default_factory=lambda: str(uuid4()))
    commands: Commands = field(default_factory=Commands)

    def keep_files(self) -> None:
        """A /tmp and processes of its own from now on; this machine's files are there read-only."""
        self.commands.tmp = tempfile.mkdtemp(prefix="fake-sandbox-")
        self.commands.prefix = (
            "bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--bind", self.commands.tmp, "/tmp",
            "--unshare-pid", "--proc", "/proc", "--die-with-parent",
        )  # fmt: skip

    def end(self) -> None:
        self.commands.kill_all()
        if self.commands.prefix:
            shutil.rmtree(self.commands.tmp, ignore_errors=True)

    def shown(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "status": {"state": self.state, "message": f"it is {self.state}"},
            "metadata": self.body.get("metadata") or {},
        }


class FakeServer:
    """`faults`: what happens at a step (create, get, delete, list, version, command, upload,
    download) instead. `files`: each sandbox has a /tmp of its own.

    An int is a status, a str a Location, bytes a body that is no JSON, None a hang, a function is
    called with the handler.
    """

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.sandboxes: dict[str, FakeSandbox] = {}
        self.deleted: list[str] = []
        self.created: list[dict[str, Any]] = []
        self.requests: list[tuple[str, str, str]] = []  # method, path, key
        self.faults: dict[str, Any] = {}
        self.sse = False
        self.files = False
        self.refuses_policies = False
        self.released = threading.Event()
        handler = type("Handler", (_Handler,), {"fake": self})
        self._http = _Http(("127.0.0.1", 0), handler)
        self.port = self._http.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        if tls is not None:
            self._http.socket = tls.wrap_socket(
                self._http.socket, server_side=True, do_handshake_on_connect=False
            )
            self.url = f"https://127.0.0.1:{self.port}"

    def add(self, body: dict[str, Any]) -> FakeSandbox:
        made = FakeSandbox(body)
        if self.files:
            made.keep_files()
        self.sandboxes[made.id] = made
        return made

    def delete(self, identity: str) -> bool:
        found = self.sandboxes.pop(identity, None)
        if found is not None:
            self.deleted.append(identity)
            found.end()
        return found is not None

    def reset(self) -> None:
        """As it was made, for the next test."""
        self.faults.clear()
        self.sse = False
        self.__dict__.pop("add", None)
        for identity in list(self.sandboxes):
            self.delete(identity)
        for seen in (self.deleted, self.created, self.requests):
            seen.clear()

    def start(self) -> None:
        threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        self.released.set()
        self._http.shutdown()
        self._http.server_close()
        for identity in list(self.sandboxes):
            self.delete(identity)


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


class _Handler(ExecdHandler):
    fake: FakeServer

    def do_GET(self) -> None:  # noqa: N802
        self._route("GET")

    def do_POST(self) -> None:  # noqa: N802
        self._route("POST")

    def do_DELETE(self) -> None:  # noqa: N802
        self._route("DELETE")

    def _route(self, method: str) -> None:
        fake, path = self.fake, urlsplit(self.path).path
        fake.requests.append((method, self.path, self.headers.get(KEY_HEADER, "")))
        parts = path.strip("/").split("/")
        if path == "/version":
            self._step("version", 200, {"version": "1.1.1-fake"})
        elif self.headers.get(KEY_HEADER) != KEY:
            self.answer(401, {"code": "INVALID_API_KEY", "message": "the key is invalid"})
        elif parts[:2] == ["v1", "sandboxes"]:
            self._sandboxes(method, parts[2:])
        else:
            self.answer(404, {"code": "NOT_FOUND", "message": "no such path"})

    def _sandboxes(self, method: str, rest: list[str]) -> None:
        fake = self.fake
        if not rest and method == "POST":
            body = self._body()
            fake.created.append(body)
            if fake.refuses_policies and "networkPolicy" in body:
                message = "networkPolicy needs egress.image"
                self.answer(400, {"code": "INVALID_PARAMETER", "message": message})
                return
            if "create" not in fake.faults or fake.faults.get("create_anyway"):
                made = fake.add(body)
            self._step("create", 202, lambda: made.shown())
        elif not rest:
            query = dict(parse_qsl(urlsplit(self.path).query))
            wanted = dict(parse_qsl(query.get("metadata", "")))
            each = [one.shown() for one in list(fake.sandboxes.values())]
            items = [one for one in each if wanted.items() <= one["metadata"].items()]
            self._step("list", 200, {"items": items, "pagination": {"hasNextPage": False}})
        elif (found := fake.sandboxes.get(rest[0])) is None:
            self.answer(404, {"code": "NOT_FOUND", "message": "no such sandbox"})
        elif rest[1:2] == ["proxy"]:
            self._execd(method, found)
        elif rest[1:2] == ["endpoints"]:
            host = f"127.0.0.1:{fake.port}/v1/sandboxes/{found.id}/proxy/44772"
            self._step("endpoint", 200, {"endpoint": fake.faults.get("host", host)})
        elif rest[1:2] == ["renew-expiration"]:
            found.renewed += 1
            self._step("renew", 200, self._body())
        elif method == "DELETE":
            if "delete" not in fake.faults:
                fake.delete(found.id)
            self._step("delete", 204, None)
        else:
            self._step("get", 200, found.shown())

    def _execd(self, method: str, found: FakeSandbox) -> None:
        self.commands = found.commands
        path = urlsplit(self.path).path
        step = {"/command": "command", "/upload": "upload", "/download": "download"}.get(
            path[path.rindex("/") :], "ping"
        )
        if method == "POST" and step == "command" and step in self.fake.faults:
            self._faulty_command()
        elif method == "DELETE":
            ExecdHandler.do_DELETE(self)
        elif step in self.fake.faults or step == "ping":
            if method == "POST":
                self.rfile.read(int(self.headers["Content-Length"]))
            self._step(step, 200, None)
        elif method == "POST":
            ExecdHandler.do_POST(self)
        else:
            ExecdHandler.do_GET(self)

    def _faulty_command(self) -> None:
        self._body()
        self.send_response(200)
        self.end_headers()
        for piece in self.fake.faults["command"]:
            if piece is None:
                self.fake.released.wait()
            else:
                self.wfile.write(piece)
                self.wfile.flush()

    def _step(self, name: str, status: int, body: Any) -> None:
        fault = self.fake.faults.get(name, 0)
        if fault is None:
            self.fake.released.wait()
        elif callable(fault):
            fault(self)
        elif isinstance(fault, str):
            self.send_response(307)
            self.send_header("Location", fault)
            self.end_headers()
        elif isinstance(fault, bytes):
            self.send_response(status)
            self.end_headers()
            self.wfile.write(fault)
        elif fault:
            self.answer(fault, {"code": "FAULT", "message": "made to fail"})
        else:
            self.answer(status, body() if callable(body) else body)

    def event(self, event: dict[str, Any]) -> None:
        prefix = b"data: " if self.fake.sse else b""
        self.wfile.write(prefix + json.dumps(event).encode() + b"\n\n")
        self.wfile.flush()

    def _body(self) -> Any:
        return json.loads(self.rfile.read(int(self.headers["Content-Length"])))

    def handle(self) -> None:
        with suppress(OSError):
            super().handle()


@contextmanager
def running_fake(tls: ssl.SSLContext | None = None) -> Iterator[FakeServer]:
    fake = FakeServer(tls)
    fake.start()
    try:
        yield fake
    finally:
        fake.stop()


@contextmanager
def fake_options(env: Mapping[str, str]) -> Iterator[tuple[FakeServer, dict[str, str]]]:
    """A fake server whose sandboxes have files of their own, and the environment of its daemon.

    Like a server without the image for it, it refuses network policies.
    """
    with running_fake() as fake, tempfile.TemporaryDirectory() as folder:
        fake.files = True
        fake.refuses_policies = True
        key = Path(folder) / "key"
        key.write_text(KEY)
        key.chmod(0o600)
        keys = {"url": fake.url, "api_key_file": str(key), "image": "image:of-tests"}
        named = {f"SANDBOXD_OPENSANDBOX_{name.upper()}": value for name, value in keys.items()}
        yield fake, {"SANDBOXD_BACKEND": "opensandbox", **named, **env}
