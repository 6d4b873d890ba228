"""A process of the host that attacks are after: same user, everything about it left open.

It is dumpable, lets every process trace it and holds a secret in its environment, its memory and an
open file without a name, so whatever keeps an attack from it is the sandbox.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.processes import process

SECRET = "the-bystander-knows-this"

_PROGRAM = """
import ctypes, json, os, signal, sys, tempfile
libc = ctypes.CDLL(None)
libc.prctl(0x59616D61, ctypes.c_ulong(-1), 0, 0, 0)  # PR_SET_PTRACER_ANY
memory = ctypes.create_string_buffer(os.environb[b"SECRET"], 64)
file = tempfile.TemporaryFile()
file.write(os.environb[b"SECRET"])
file.flush()
print(json.dumps([ctypes.addressof(memory), file.fileno()]), flush=True)
for line in sys.stdin:
    print(json.dumps(memory.value.decode()), flush=True)
"""


@dataclass
class Bystander:
    process: subprocess.Popen[str]
    address: int
    descriptor: int

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def running(self) -> bool:
        """Alive and not stopped."""
        now = process(self.pid)
        return now is not None and now.state in "SRD"

    @property
    def memory(self) -> str:
        """What it says is in its memory now."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return str(self.line())

    def line(self) -> Any:
        """The next thing that it says."""
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())


@contextmanager
def bystander(cwd: Path, prefix: Sequence[str] = ()) -> Iterator[Bystander]:
    with subprocess.Popen(
        [*prefix, sys.executable, "-I", "-S", "-c", _PROGRAM],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=cwd,
        env={"SECRET": SECRET, "PATH": "/usr/bin:/bin"},
    ) as popen:  # fmt: skip
        try:
            address, descriptor = Bystander(popen, 0, 0).line()
            yield Bystander(popen, address, descriptor)
        finally:
            popen.kill()
