"""Output: through JSON messages and through a passed descriptor, against a plain pipe.

The writer is the same program in all three, and so is the text: lines like those of a build log.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable

import msgspec
from support.daemon import Daemon

from bench.lines import Line, Section, Target
from bench.place import Place

JSON_MB_S, DESCRIPTORS_OF_PIPE = 150.0, 0.8
READ = 1 << 20
PROGRAM = """
import os, sys
line = b"[ 42%] Building CXX object src/CMakeFiles/thing.dir/some/source.cc.o -- ok\\n"
block = (line * (1 + (1 << 20) // len(line)))[: 1 << 20]
for _ in range(int(sys.argv[1]) >> 20):
    view = memoryview(block)
    while view:
        view = view[os.write(1, view) :]
"""


class _Params(msgspec.Struct):
    data: str = ""


class _Result(msgspec.Struct):
    outcome: str
    exit_code: int | None


class _Message(msgspec.Struct):
    method: str = ""
    params: _Params | None = None
    id: int | None = None
    result: _Result | None = None


def measured(place: Place) -> Section:
    size = place.size.stream_bytes
    python = shutil.which("python3", path="/usr/bin:/usr/local/bin:/bin") or "python3"
    argv = [python, "-c", PROGRAM, str(size)]
    ways: list[Callable[[], int]] = [
        lambda: _pipe(argv),
        lambda: _descriptors(place.warm, argv),
        lambda: _json(place.warm, argv),
    ]
    took = [0.0] * len(ways)
    for turn in range(place.size.stream_turns):
        for step in range(len(ways)):
            index = (turn + step) % len(ways)
            time.sleep(0.2)
            began = time.perf_counter()
            got = ways[index]()
            took[index] += time.perf_counter() - began
            if got != size:
                raise RuntimeError(f"{got} bytes came of {size}")
    rates = [size * place.size.stream_turns / seconds / 1e6 for seconds in took]
    return Section(f"Streaming {size >> 20} MiB of text", tuple(_lines(*rates)))


def _lines(pipe: float, passed: float, through_json: float) -> list[Line]:
    return [
        Line("plain pipe, no sandbox", f"{pipe:.0f} MB/s"),
        Line(
            "execute with passed descriptors", f"{passed:.0f} MB/s", "", passed / pipe,
            "plain pipe", (Target(DESCRIPTORS_OF_PIPE, passed / pipe, least=True),),
        ),
        Line(
            "execute, stream: true (JSON)", f"{through_json:.0f} MB/s", "", through_json / pipe,
            "plain pipe", (Target(JSON_MB_S, through_json, least=True, unit=" MB/s"),),
        ),
    ]  # fmt: skip


def _pipe(argv: list[str]) -> int:
    with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        return _drained(child.stdout.fileno())


def _drained(fd: int) -> int:
    total = 0
    while piece := os.read(fd, READ):
        total += len(piece)
    return total


def _descriptors(daemon: Daemon, argv: list[str]) -> int:
    read, write = os.pipe()
    totals: list[int] = []
    reader = threading.Thread(target=lambda: totals.append(_drained(read)))
    try:
        with daemon.connect(timeout_s=300) as connection:
            params = {"argv": argv, "fds": {"stdout": 0}, "manifest": {"timeout": "none"}}
            request = connection.start("execute", params, fds=[write])
            os.close(write)
            reader.start()
            _check(msgspec.convert(connection.result(request), _Result))
            reader.join()
    finally:
        os.close(read)
    return totals[0]


def _json(daemon: Daemon, argv: list[str]) -> int:
    """A client that decodes every message, and keeps none."""
    with daemon.connect(timeout_s=300) as connection:
        params = {"argv": argv, "stream": True, "manifest": {"timeout": "none"}}
        connection.start("execute", params)
        return _counted(connection.socket)


def _counted(sock: socket.socket) -> int:
    decoder = msgspec.json.Decoder(_Message)
    total, rest = 0, b""
    while True:
        data = sock.recv(READ)
        if not data:
            raise RuntimeError("the daemon ended the connection")
        *lines, rest = (rest + data).split(b"\n") if b"\n" in data else [rest + data]
        for line in lines:
            message = decoder.decode(line)
            if message.method == "execution/output" and message.params is not None:
                total += len(message.params.data)
            elif message.id is not None:
                if message.result is None:
                    raise RuntimeError(f"execute failed: {line!r}")
                _check(message.result)
                return total


def _check(result: _Result) -> None:
    if (result.outcome, result.exit_code) != ("exited", 0):
        raise RuntimeError(f"the writer did not succeed: {result}")
