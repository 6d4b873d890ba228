"""sandlock (PyPI): the library, kept warm in a Python process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.peers.peer import Peer, Run, driver, pip

_DRIVER = """
import json, os, sys
from sandlock import Sandbox
roots = ("/usr", "/bin", "/lib", "/lib64", "/etc", "/dev", "/proc")
readable = [root for root in roots if os.path.exists(root)]
sandbox = Sandbox(fs_readable=readable, fs_writable=[os.getcwd(), "/tmp"])
for line in sys.stdin:
    print(sandbox.run(json.loads(line)).exit_code, flush=True)
"""


def install(folder: Path) -> None:
    pip(folder, "sandlock")


@contextmanager
def opened(folder: Path, workspace: Path) -> Iterator[Run]:
    with driver([folder / "bin" / "python", "-c", _DRIVER], workspace) as run:
        yield run


PEER = Peer("sandlock, library in a warm Python", install, opened)
