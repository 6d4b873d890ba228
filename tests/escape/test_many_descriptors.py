"""Very many descriptors keep the sandbox's init from its other work: it looks at some of them."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from support.attacks import Box, python
from support.backends import running_backend

pytestmark = pytest.mark.requires("bubblewrap")

# The processes that have the descriptors come first in a walk, and the last child comes last.
PROGRAM = python("""
    import resource, signal
    count, name = int(args[0]), args[1]
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    full, ours, theirs = min(most, 4096) - 64, *os.pipe()
    for _ in range(-(-count // full)):
        if os.fork() == 0:
            for _ in range(full):
                os.dup(theirs)
            os.write(theirs, b"x")
            signal.pause()
        os.read(ours, 1)
    if os.fork() == 0:
        if os.fork() == 0 and os.fork() == 0:
            held = socket.socket(socket.AF_UNIX)
            held.bind("\\0" + name)
            held.listen(8)
            os.write(theirs, b"x")
        signal.pause()
    os.read(ours, 1)
    socket.socket(socket.AF_UNIX).connect("\\0" + name)
    worked()
""")
FEW, MANY = 100, 20_000


def test_a_listener_behind_them_is_not_looked_for(tmp_path: Path) -> None:
    name = str(tmp_path)
    with running_backend("bubblewrap") as daemon, closing(Box("bubblewrap", daemon)) as box:
        assert box.attack(PROGRAM, FEW, name).worked
        assert box.attack(PROGRAM, MANY, name).words == "ECONNREFUSED"
