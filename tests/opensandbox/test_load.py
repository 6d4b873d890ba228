"""Our own side under load. The server only pretends to run commands. `make bench` runs 1,000."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from support.opensandbox_load import run_load, slow_server

COUNT = 300


def test_many_executions_at_once(daemon_on: Callable[..., Any]) -> None:
    """Each gets its own answer, and nothing is left. The sandboxes are made at the same time, not
    one after the other."""
    with slow_server() as url, daemon_on(url) as daemon:
        load = run_load(daemon, url, COUNT)
        print(f"{load.took_s:.1f} s, peak {load.peak_bytes >> 20} MiB, {load.most} at once")
        outputs = [answer["stdout"]["data"] for answer in load.answers]
        assert outputs == [f"{number}\n" for number in range(COUNT)]
        assert {answer["outcome"] for answer in load.answers} == {"exited"}
        assert load.left == 0
        assert load.most > COUNT // 4
        assert load.peak_bytes < 500 << 20
