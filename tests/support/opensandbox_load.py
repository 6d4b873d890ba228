"""Many executions at once through one daemon, against a server with the latencies of a cluster."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.daemon import Daemon

CONNECTIONS = 8
INHERIT = {"network": "inherit"}


@dataclass(frozen=True, slots=True)
class Load:
    """`took_s`: from the first request to the last answer. `waited_ms`: until each answer came."""

    answers: list[dict[str, Any]]
    waited_ms: list[float]
    took_s: float
    peak_bytes: int
    left: int
    most: int


@contextmanager
def slow_server() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    program = Path(__file__).with_name("slow_opensandbox.py")
    server = subprocess.Popen([sys.executable, str(program), str(port)])
    url = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + 30
        while not _up(url):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield url
    finally:
        server.terminate()
        server.wait(10)


def _up(url: str) -> bool:
    try:
        urllib.request.urlopen(f"{url}/version", timeout=5).close()
    except OSError:
        return False
    return True


def run_load(daemon: Daemon, url: str, count: int) -> Load:
    connections = [daemon.connect(timeout_s=200) for _ in range(CONNECTIONS)]
    began = time.monotonic()
    each = [(number, connections[number % CONNECTIONS], _params(number)) for number in range(count)]
    calls = {number: one.start("execute", params) for number, one, params in each}
    answers: dict[int, tuple[dict[str, Any], float]] = {}

    def collect(index: int) -> None:
        for number in range(index, count, CONNECTIONS):
            answer = connections[index].result(calls[number])
            answers[number] = answer, (time.monotonic() - began) * 1000

    with ThreadPoolExecutor(CONNECTIONS) as readers:
        list(readers.map(collect, range(CONNECTIONS)))
    took_s = time.monotonic() - began
    for connection in connections:
        connection.close()
    with urllib.request.urlopen(f"{url}/seen", timeout=20) as said:
        seen = json.load(said)
    in_order = [answers[number] for number in range(count)]
    return Load(
        [answer for answer, _ in in_order], [waited for _, waited in in_order], took_s,
        peak_bytes(daemon), seen["left"], seen["most"],
    )  # fmt: skip


def _params(number: int) -> dict[str, Any]:
    return {"argv": ["echo", str(number)], "manifest": INHERIT}


def peak_bytes(daemon: Daemon) -> int:
    """The most memory that the daemon has had."""
    for line in Path(f"/proc/{daemon.pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) << 10
    raise AssertionError("no VmHWM")
