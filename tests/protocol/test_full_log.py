"""A daemon whose stderr is a pipe without a reader continues to serve."""

from __future__ import annotations

import logging
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from support.daemon import ROOT, scrubbed_env
from support.rpc import PATIENCE_S, Connection

from sandboxd import logs

RECORDS = 3 * logs.MOST_LINES


def records(handler: logging.Handler, count: int) -> None:
    for number in range(count):
        record = logging.LogRecord("test", logging.INFO, "", 0, f"line {number:05d}", (), None)
        handler.handle(record)


def read_until(fd: int, lines: int) -> tuple[int, str]:
    """Until so many lines of ours came: how many were reported as dropped, and the last line."""
    text = b""
    while text.count(b"line 0") < lines or not text.endswith(b"\n"):
        text += os.read(fd, 65536)
    said = re.findall(rb"(\d+) log lines were dropped", text)
    return sum(map(int, said)), text.decode().splitlines()[-1]


def test_lines_that_do_not_fit_are_dropped_and_counted() -> None:
    """A plain stream handler would wait in its write here, for ever."""
    read, write = os.pipe()
    handler = logs.QueuedLines(write)
    handler.setFormatter(logging.Formatter("%(message)s " + "x" * 500))
    records(handler, RECORDS)
    room = logs.MOST_LINES + 65536 // 500 + 2  # in the queue, in the pipe, in the thread's hands
    assert RECORDS - room <= handler.dropped <= RECORDS - logs.MOST_LINES
    lost = handler.dropped
    told, _ = read_until(read, RECORDS - lost)
    assert told < lost
    records(handler, 1)
    told_now, last = read_until(read, 1)
    assert told + told_now == lost
    assert last.startswith("line 00000")
    handler.close()
    os.close(read)
    os.close(write)


def test_one_line_is_bounded() -> None:
    text = logs.JsonLines().format(
        logging.LogRecord("test", logging.INFO, "", 0, "y" * 1_000_000, (), None)
    )
    assert len(text) < 2 * logs.MOST_BYTES


# The daemon as it is, which says a lot when it starts. With "plain" it logs as most programs do.
CHATTY = f"""
import logging, sys
from sandboxd import cli
configure = cli.configure
def talk(level):
    configure(level)
    if sys.argv.pop(1) == "plain":
        logging.getLogger().handlers[:] = [logging.StreamHandler()]
    for number in range({RECORDS}):
        logging.getLogger("test").warning("line %d", number)
cli.configure = talk
sys.argv, words = sys.argv[:2], sys.argv[2:]
sys.exit(cli.main(words))
"""


@contextmanager
def unread(kind: str) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """A daemon that logs into a full pipe: its socket, and its process."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    with suppress(BlockingIOError):
        while True:
            os.write(write, b"." * 4096)
    os.set_blocking(write, True)
    with tempfile.TemporaryDirectory(prefix="sbxl-") as folder:
        (Path(folder) / "sandboxd").mkdir(mode=0o700)
        socket = f"{folder}/sandboxd/s.sock"
        process = subprocess.Popen(
            [sys.executable, "-c", CHATTY, kind, "--socket", socket], cwd=ROOT,
            env=scrubbed_env(Path(folder), {}), stdout=subprocess.PIPE, stderr=write,
        )  # fmt: skip
        os.close(write)
        try:
            yield socket, process
        finally:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()
            os.close(read)


def test_a_full_stderr_does_not_stop_the_daemon() -> None:
    with unread("ours") as (socket, process):
        assert process.stdout is not None
        assert b"listening" in process.stdout.readline()
        with Connection(socket) as client:
            warnings = client.call("status")["warnings"]
            assert any("log lines were dropped" in warning for warning in warnings), warnings
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0


def test_control_with_a_plain_handler_it_never_listens() -> None:
    with unread("plain") as (_, process):
        assert process.stdout is not None
        readable, _, _ = select.select([process.stdout], [], [], 3)
        assert not readable
