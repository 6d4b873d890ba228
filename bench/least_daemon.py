"""The least that a daemon in Python costs: one request read, one process spawned, one answer sent.

No sandbox, no policy, no audit and no limits: what sandboxd takes beyond this row is its own.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.rpc import Connection

from bench.measure import Row
from bench.rows_baseline import COMMAND


@contextmanager
def least_daemon(folder: Path) -> Iterator[Row]:
    path = str(folder / "least.sock")
    with subprocess.Popen([sys.executable, "-m", __name__, path], stdout=subprocess.PIPE) as daemon:
        assert daemon.stdout is not None
        daemon.stdout.readline()
        try:
            with Connection(path) as connection:
                yield Row("least daemon, no sandbox", lambda: _run(connection))
        finally:
            daemon.kill()


def _run(connection: Connection) -> None:
    result = connection.call("execute", {"argv": [COMMAND]})
    if result["exit_code"] != 0:
        raise RuntimeError(f"the command did not succeed: {result}")


def _serve(path: str) -> None:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(path)
    listener.listen()
    print("listening", flush=True)
    client, _ = listener.accept()
    loop = asyncio.new_event_loop()
    empty = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    loop.add_reader(client, lambda: _answer(loop, client, empty))
    loop.run_forever()


def _answer(loop: asyncio.AbstractEventLoop, client: socket.socket, empty: int) -> None:
    data = client.recv(65536)
    if not data:
        loop.stop()
        return
    request = json.loads(data)
    argv = request["params"]["argv"]
    (out, out_end), (err, err_end) = os.pipe2(os.O_CLOEXEC), os.pipe2(os.O_CLOEXEC)
    ends = [(os.POSIX_SPAWN_DUP2, fd, to) for to, fd in enumerate((empty, out_end, err_end))]
    pid = os.posix_spawn(argv[0], argv, {}, file_actions=ends)
    os.close(out_end)
    os.close(err_end)
    process = os.pidfd_open(pid)

    def ended() -> None:
        loop.remove_reader(process)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        said = {"stdout": os.read(out, 65536).decode(), "stderr": os.read(err, 65536).decode()}
        answer = {"jsonrpc": "2.0", "id": request["id"], "result": {"exit_code": code, **said}}
        client.sendall(json.dumps(answer).encode() + b"\n")
        for fd in (out, err, process):
            os.close(fd)

    loop.add_reader(process, ended)


if __name__ == "__main__":
    _serve(sys.argv[1])
