"""The daemon gets no more memory from the kernel: requests fail, and it serves the next ones."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from support.daemon import Daemon
from support.rpc import Closed, Connection, RpcError


def in_use(daemon: Daemon) -> int:
    return int(Path(f"/proc/{daemon.pid}/statm").read_text().split()[0]) * 4096


def limit(daemon: Daemon, size: int) -> None:
    resource.prlimit(daemon.pid, resource.RLIMIT_AS, (size, resource.RLIM_INFINITY))


def served(daemon: Daemon) -> None:
    until = time.monotonic() + 60
    while True:
        with daemon.connect() as other:
            try:
                assert other.call("execute", {"argv": ["true"]})["exit_code"] == 0
            except (RpcError, Closed):
                assert time.monotonic() < until
                time.sleep(0.1)
                continue
            return


# What is printed, and the MiB that the daemon gets besides those that it uses after its start. As
# JSON, a control character is six bytes.
PRINTED = [("16000000 /dev/zero | tr '\\0' x", 48)]
PRINTED += [("8000000 /dev/zero | tee /dev/stderr", room) for room in (250, 350, 410)]


@pytest.mark.isolation
@pytest.mark.parametrize(("printed", "room"), PRINTED)
def test_requests_that_need_more_memory_than_there_is(
    start_daemon: Callable[..., Daemon], printed: str, room: int
) -> None:
    daemon = start_daemon()
    served(daemon)
    served(daemon)
    limit(daemon, in_use(daemon) + (room << 20))
    flood = {"argv": ["sh", "-c", f"head -c {printed}"]}
    text = "x" * (8 << 20)
    failed = 0
    with ExitStack() as greedy:
        asked: list[tuple[Connection, int]] = []
        for _ in range(8):
            client = greedy.enter_context(daemon.connect(timeout_s=60))
            with suppress(OSError):
                asked.append((client, client.start("execute", flood)))
                asked.append((client, client.start("execute", {"argv": ["echo", text]})))
        for client, number in asked:
            try:
                client.result(number)
            except (RpcError, Closed, OSError):
                failed += 1
    assert failed  # the control
    served(daemon)


@pytest.mark.isolation
def test_a_large_answer_takes_no_more_memory_than_it_has(
    start_daemon: Callable[..., Daemon],
) -> None:
    """Whether there is room for control characters (six bytes each) is asked, not tried out."""
    daemon = start_daemon()
    printed = "head -c 8000000 /dev/zero | tr '\\0' x | tee /dev/stderr"
    with daemon.connect(timeout_s=60) as client:
        result = client.call("execute", {"argv": ["sh", "-c", printed]})
    assert len(result["stdout"]["data"]) == len(result["stderr"]["data"]) == 8_000_000
    status = Path(f"/proc/{daemon.pid}/status").read_text()
    peak = int(status.partition("VmHWM:")[2].split()[0]) << 10
    assert peak < 250 << 20
