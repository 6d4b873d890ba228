"""The cgroup of a sandbox is used again: a command whose output is still being sent has no power
over the next sandbox in it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from support.attacks import PYTHON
from support.backends import running_backend

pytestmark = pytest.mark.requires("root", "bubblewrap")
# Prints until nobody has read for a while, so that it ends while its output waits to be sent.
UNREAD = """
import os, pathlib, sys, time
os.set_blocking(1, False)
last = time.time()
while time.time() - last < 0.5:
    try:
        os.write(1, b"x" * 4096)
        last = time.time()
    except BlockingIOError:
        time.sleep(0.01)
pathlib.Path(sys.argv[1]).touch()
"""
FORKS = "i=0; while [ $i -lt 60 ]; do /bin/sleep 0.05 || exit 9; i=$((i+1)); done; echo fine"


@pytest.mark.parametrize("way", ["leaves", "cancels"])
def test_a_client_that_ends_forbids_no_forks_elsewhere(way: str, tmp_path: Path) -> None:
    config = "[pool]\nenabled = false\n"
    done = tmp_path.resolve() / "done"
    with running_backend("bubblewrap", config=config) as daemon:
        slow = daemon.connect(timeout_s=60)
        others = [daemon.connect(timeout_s=60) for _ in range(4)]
        manifest = {"network": "deny", "fs_write_allow": [str(tmp_path.resolve())]}
        unread = slow.start("execute", {"argv": [PYTHON, "-c", UNREAD, str(done)],
                                        "manifest": manifest, "stream": True})  # fmt: skip
        deadline = time.monotonic() + 60
        while not done.exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        time.sleep(0.5)  # its sandbox ends
        loop = {"argv": ["/bin/sh", "-c", FORKS], "manifest": {"network": "deny"}}
        requests = [other.start("execute", loop) for other in others]
        time.sleep(1)
        if way == "leaves":
            slow.close()
        else:
            slow.notify("$/cancelRequest", {"id": unread})
        for other, request in zip(others, requests, strict=True):
            result = other.result(request)
            assert (result["outcome"], result["stdout"]["data"]) == ("exited", "fine\n"), result
            other.close()
        slow.close()
        assert "ValueError" not in daemon.log
