"""How one client's attack affects another client: its `/bin/true`, and its timeouts.

Tests assert how much work a callback does. These rows show the effect, on a machine that is idle
otherwise.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from support.daemon import Daemon
from support.rpc import Closed, Connection, RpcError

from bench.lines import Line, Section, Target, ms
from bench.measure import Measured
from bench.place import Place

TRUE_MS, TIMEOUT_MS = 100.0, 250.0
TIMEOUT_S = 0.3
Attack = Callable[[Connection, Path], None]

_NAMES = "print(' '.join(chr(39) + '/etc/' + str(n) + chr(39) for n in range(700)) + end)"
_ROWS = {
    "1 MB of captured output": "for n in range(20000): print('a line of output', n, 'x' * 24)",
    "700 quoted names a line": "import sys; end = ': Permission denied'\n"
    f"for _ in range(40): {_NAMES.replace('+ end)', '+ end, file=sys.stderr)')}",
    "a storm of renames": "import os, time; open('a', 'w'); t = time.time()\n"
    "while time.time() < t + 2:\n"
    "    for _ in range(500): os.rename('a', 'b'); os.rename('b', 'a')",
}  # fmt: skip


def measured(place: Place) -> Section:
    attacks: dict[str, Attack] = {"nothing": _idle}
    attacks |= {name: _python(script) for name, script in _ROWS.items()}
    attacks |= {
        "a background process that prints": _flood,
        "1000 requests in one batch": _batch,
        "8 clients that ask and do not read": _asked_unread,
        "programs that are FIFOs": _fifos,
    }
    workspace = place.folder / "starved"
    workspace.mkdir(exist_ok=True)
    lines = [
        line for name, attack in attacks.items() for line in _lines(name, attack, place, workspace)
    ]
    return Section(
        "Another client during an attack", tuple(lines),
        "A timeout is measured by how much later than asked the command ended.",
    )  # fmt: skip


def _lines(name: str, attack: Attack, place: Place, workspace: Path) -> list[Line]:
    short, late = Measured("true"), Measured("timeout")
    with _attacked(attack, place.warm, workspace), place.warm.connect() as client:
        for _ in range(max(4, place.size.rounds // 2)):
            began = time.perf_counter()
            client.call("execute", {"argv": ["/bin/true"]})
            short.samples_ms.append((time.perf_counter() - began) * 1000)
            began = time.perf_counter()
            manifest = {"timeout": TIMEOUT_S}
            client.call("execute", {"argv": ["/bin/sleep", "9"], "manifest": manifest})
            late.samples_ms.append((time.perf_counter() - began - TIMEOUT_S) * 1000)
    return [
        Line(f"/bin/true beside {name}", ms(short.p50), ms(short.p95), None, "",
             (Target(TRUE_MS, short.p95, unit=" ms"),)),
        Line(f"timeout beside {name}", ms(late.p50), ms(late.p95), None, "",
             (Target(TIMEOUT_MS, late.p95, unit=" ms"),)),
    ]  # fmt: skip


@contextmanager
def _attacked(attack: Attack, daemon: Daemon, workspace: Path) -> Iterator[None]:
    stop = threading.Event()

    def go_on() -> None:
        with suppress(Closed, OSError), daemon.connect(timeout_s=60) as connection:
            while not stop.is_set():
                with suppress(RpcError):
                    attack(connection, workspace)

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        time.sleep(0.5)
        yield
    finally:
        stop.set()
        thread.join()


def _idle(connection: Connection, workspace: Path) -> None:
    time.sleep(0.05)


def _python(script: str) -> Attack:
    def attack(connection: Connection, workspace: Path) -> None:
        words = ["/usr/bin/python3", "-c", script]
        params = {"preset": "workspace-write", "workspace": str(workspace), "argv": words}
        connection.call("execute", {**params, "cwd": str(workspace)})

    return attack


def _flood(connection: Connection, workspace: Path) -> None:
    name = connection.call("sandbox/create", {})["sandbox"]
    try:
        request = {"sandbox": name, "argv": ["sh", "-c", "(exec timeout 3 yes) & exit 0"]}
        connection.call("execute", request)
        time.sleep(2)
    finally:
        connection.call("sandbox/destroy", {"sandbox": name})


def _batch(connection: Connection, workspace: Path) -> None:
    ask: list[dict[str, Any]] = [
        {"jsonrpc": "2.0", "id": n, "method": "manifest/check", "params": {"preset": "read-only"}}
        for n in range(1000)
    ]
    connection.send_raw(json.dumps(ask).encode() + b"\n")
    connection.receive()


def _asked_unread(connection: Connection, workspace: Path) -> None:
    """They read a little now and then, and connect again: else the daemon soon reads no more."""
    line = b'{"jsonrpc":"2.0","id":1,"method":"status","params":{}}\n' * 50
    path = str(connection.socket.getpeername())
    with ExitStack() as stack:
        clients = [stack.enter_context(Connection(path)) for _ in range(8)]
        for client in clients:
            client.socket.setblocking(False)
        until = time.monotonic() + 2
        while time.monotonic() < until:
            for client in clients:
                with suppress(BlockingIOError):
                    client.socket.send(line)
                with suppress(BlockingIOError):
                    client.socket.recv(4096)
            time.sleep(0.005)


def _fifos(connection: Connection, workspace: Path) -> None:
    fifo = workspace / "fifo"
    if not fifo.exists():
        os.mkfifo(fifo, 0o755)
    connection.call("execute", {"argv": [str(fifo)]})
