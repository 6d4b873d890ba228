"""The binary itself: no run-time needs, hardened, and small while it waits."""

from __future__ import annotations

import re
import subprocess
import time
from pathlib import Path

import pytest
from init_driver import BINARY, Place, ready_init

pytestmark = pytest.mark.requires("readelf")
MOST_KIB = 400


def readelf(*options: str) -> str:
    return subprocess.run(
        ["readelf", "-W", *options, str(BINARY)], capture_output=True, text=True, check=True
    ).stdout


def test_it_needs_no_library_and_no_loader() -> None:
    assert "INTERP" not in readelf("-l")
    assert "NEEDED" not in readelf("-d")


def test_it_is_hardened() -> None:
    assert re.search(r"Type:\s+DYN", readelf("-h"))
    segments = readelf("-l")
    assert "GNU_RELRO" in segments
    (stack,) = [line for line in segments.splitlines() if "GNU_STACK" in line]
    assert "RWE" not in stack
    assert "BIND_NOW" in readelf("-d") or "NOW" in readelf("-d")


@pytest.mark.requires("root")
def test_a_waiting_init_holds_little_memory() -> None:
    """Only root may look: it is not dumpable."""
    with ready_init(Place()) as init:
        assert init.exec("true").wait().code == 0
        rollup = Path(f"/proc/{init.process.pid}/smaps_rollup").read_text()
        private = re.findall(r"^Private_(?:Clean|Dirty):\s+(\d+) kB$", rollup, re.M)
        dirty = int(private[1])
        assert dirty < 200, rollup


def test_an_init_that_waits_gives_memory_back() -> None:
    """And works afterwards: what it dropped is empty, or read from the program again."""
    with ready_init(Place()) as init:
        for _ in range(2):
            assert init.exec("true").wait().code == 0
            deadline = time.monotonic() + 60
            while resident_kib(init.process.pid) > MOST_KIB:
                assert time.monotonic() < deadline, resident_kib(init.process.pid)
                time.sleep(0.05)


def resident_kib(pid: int) -> int:
    found = re.search(r"^VmRSS:\s+(\d+) kB$", Path(f"/proc/{pid}/status").read_text(), re.M)
    assert found is not None
    return int(found.group(1))
