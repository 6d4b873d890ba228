"""The heap of the daemon's process."""

from __future__ import annotations

import subprocess
import sys

import pytest

# A block of a captured output is freed, then others with small blocks between them.
SCRIPT = """
import sys
from sandboxd.daemon.linux import _bound_heap

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

_bound_heap()
before = resident()
large = bytes(bytearray(8 << 20))
del large
kept = []
blocks = []
for _ in range(8):
    blocks.append(bytearray(b"x") * (6 << 20))
    kept += [bytes(600) for _ in range(64)]
del blocks
print(resident() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the C library of Linux")
def test_freed_large_blocks_go_back_to_the_kernel() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, check=True, timeout=60
    )
    assert int(done.stdout) < 8 << 20
