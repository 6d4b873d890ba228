"""The egress gate against a direct loopback connection: one stream, and what a connection costs.

The same client program runs in both; inside, the address that it connects to is the gate's.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any

from support.daemon import Daemon

from bench.lines import Line, Section, Target, ms
from bench.place import Place

OF_DIRECT = 0.5
CONNECTIONS = 50
_SERVER = """
import socket, threading
listener = socket.create_server(('127.0.0.1', 0), backlog=128)
print(listener.getsockname()[1], flush=True)
block = memoryview(bytes(1 << 20))
def serve(sock):
    with sock:
        left = int(sock.makefile('rb').readline())
        while left > 0: left -= sock.send(block[:left])
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
"""
_CLIENT = """
import json, socket, sys, time
port, size, count = map(int, sys.argv[1:])
buffer = bytearray(1 << 20)
def fetch(size):
    began = time.perf_counter()
    with socket.create_connection(('127.0.0.1', port)) as sock:
        sock.sendall(b'%d\\n' % size)
        got = 0
        while more := sock.recv_into(buffer): got += more
    if got != size: raise SystemExit(f'{got} bytes came of {size}')
    return time.perf_counter() - began
fetch(1 << 20)
print(json.dumps({'stream_s': fetch(size), 'connect_s': [fetch(1) for _ in range(count)]}))
"""
Measured = dict[str, Any]


def measured(place: Place) -> Section:
    size = place.size.stream_bytes
    with _server() as port:
        argv = [_python(), "-c", _CLIENT, str(port), str(size), str(CONNECTIONS)]
        ways: list[Callable[[], Measured]] = [
            lambda: _direct(argv),
            lambda: _gated(place.warm, argv, port),
        ]
        found: list[list[Measured]] = [[], []]
        for turn in range(place.size.stream_turns):
            for step in range(2):
                time.sleep(0.2)
                index = (turn + step) % 2
                found[index].append(ways[index]())
    rates = [size * len(runs) / sum(run["stream_s"] for run in runs) / 1e6 for runs in found]
    waits = [sorted(s * 1000 for run in runs for s in run["connect_s"]) for runs in found]
    return Section(f"Egress: one stream of {size >> 20} MiB, one byte a connection",
                   tuple(_lines(rates, waits)))  # fmt: skip


def _lines(rates: list[float], waits: list[list[float]]) -> list[Line]:
    direct, gated = rates
    ratio = gated / direct
    p95 = [wait[int(len(wait) * 0.95)] for wait in waits]
    added = median(waits[1]) / median(waits[0])
    target = Target(OF_DIRECT, ratio, least=True)
    return [
        Line("stream, direct loopback", f"{direct:.0f} MB/s"),
        Line("stream, through the gate", f"{gated:.0f} MB/s", "", ratio, "direct", (target,)),
        Line("connection, direct loopback", ms(median(waits[0])), ms(p95[0])),
        Line("connection, through the gate", ms(median(waits[1])), ms(p95[1]), added, "direct"),
    ]


def _python() -> str:
    return shutil.which("python3", path="/usr/bin:/usr/local/bin:/bin") or "python3"


@contextmanager
def _server() -> Iterator[int]:
    with subprocess.Popen([_python(), "-c", _SERVER], stdout=subprocess.PIPE) as server:
        try:
            assert server.stdout is not None
            yield int(server.stdout.readline())
        finally:
            server.kill()


def _direct(argv: list[str]) -> Measured:
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, check=True)
    result: Measured = json.loads(done.stdout)
    return result


def _gated(daemon: Daemon, argv: list[str], port: int) -> Measured:
    network = {"kind": "allow_hosts", "hosts": [f"127.0.0.1:{port}"]}
    with daemon.connect(timeout_s=300) as connection:
        params = {"argv": argv, "manifest": {"network": network, "timeout": "none"}}
        answer = connection.call("execute", params)
    if (answer["outcome"], answer["exit_code"]) != ("exited", 0):
        raise RuntimeError(f"the client did not succeed: {answer}")
    result: Measured = json.loads(answer["stdout"]["data"])
    return result
