"""A sandbox as an object: files, commands and connections beside the plain ones, in one run.

`fs/read` of 1 kB may take half of a persistent `/bin/true`. A forwarded connection is compared with
one to the same kind of server on the host's own loopback.
"""

from __future__ import annotations

import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from support.daemon import running_daemon

from bench.lines import Line, Section, Target, ms
from bench.measure import Row, latency
from bench.place import Place
from sandboxd_client import Box, Client

MOST_OF_A_COMMAND = 0.5
SERVER = """
import socketserver
class Pong(socketserver.BaseRequestHandler):
    def handle(self):
        self.request.sendall(self.request.recv(100))
server = socketserver.TCPServer(("127.0.0.1", 8000), Pong)
print("ready", flush=True)
server.serve_forever()
"""


def measured(place: Place) -> Section:
    with ExitStack() as held:
        client = held.enter_context(Client(held.enter_context(running_daemon()).socket))
        box = held.enter_context(Box(client, manifest={"network": "deny"}, timeout="none"))
        server = held.enter_context(box.start(["python3", "-c", SERVER]))
        next(event for event in server if "ready" in getattr(event, "data", ""))
        forward = box.forward(8000).endpoint
        plain = held.enter_context(_plain_server())
        box.write("/tmp/file", b"x" * 1024)
        rows = [
            Row("persistent /bin/true", lambda: client.execute(["/bin/true"], sandbox=box.sandbox)),
            Row("Box.run of /bin/true", lambda: box.run(["/bin/true"])),
            Row("fs/read of 1 kB", lambda: box.read("/tmp/file")),
            Row("a connection on the host", lambda: _exchange(socket.AF_INET, plain)),
            Row("a forwarded connection", lambda: _exchange(socket.AF_UNIX, forward)),
        ]
        command, run, read, near, far = latency(rows, rounds=place.size.rounds)
    part = read.p50 / command.p50
    return Section(
        "A sandbox as an object",
        (
            Line(command.name, ms(command.p50), ms(command.p95), 1.0, command.name),
            Line(run.name, ms(run.p50), ms(run.p95), run.p50 / command.p50, command.name),
            Line(
                read.name, ms(read.p50), ms(read.p95), part, command.name,
                (Target(MOST_OF_A_COMMAND, part),),
            ),
            Line(near.name, ms(near.p50), ms(near.p95), 1.0, near.name),
            Line(far.name, ms(far.p50), ms(far.p95), far.p50 / near.p50, near.name),
        ),
    )  # fmt: skip


@contextmanager
def _plain_server() -> Iterator[tuple[str, int]]:
    class Pong(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.sendall(self.request.recv(100))

    with socketserver.TCPServer(("127.0.0.1", 0), Pong) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield ("127.0.0.1", server.server_address[1])
        finally:
            server.shutdown()
            thread.join()


def _exchange(family: int, address: str | tuple[str, int]) -> None:
    with socket.socket(family) as client:
        client.connect(address)
        client.sendall(b"ping")
        if client.recv(100) != b"ping":
            raise RuntimeError("the server did not answer")
