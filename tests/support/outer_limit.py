"""A number of processes that a test cannot pass whatever the product does: for fork bombs.

As root a pids cgroup of cgroup v1, as a user RLIMIT_NPROC. A test that finds neither fails: a bomb
without an outer limit stops the machine.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

PIDS = Path("/sys/fs/cgroup/pids")
EMPTY_S = 20.0


@dataclass(frozen=True, slots=True)
class OuterLimit:
    """`prefix`: the words before a command that make the limit hold for it."""

    prefix: tuple[str, ...]
    folder: Path | None = None

    @property
    def reached(self) -> bool:
        """Whether the outer limit had to stop it (root only: RLIMIT_NPROC keeps no record)."""
        assert self.folder is not None
        return "max 0" not in (self.folder / "pids.events").read_text()

    @property
    def peak(self) -> int:
        assert self.folder is not None
        return int((self.folder / "pids.peak").read_text())


def present_tasks() -> int:
    return int(Path("/proc/loadavg").read_text().split()[3].partition("/")[2])


@contextmanager
def outer_limit(processes: int) -> Iterator[OuterLimit]:
    """For what is started with its prefix."""
    if os.geteuid() != 0:
        yield OuterLimit(("prlimit", f"--nproc={present_tasks() + processes}", "--"))
        return
    folder = PIDS / f"test-{os.getpid()}-{secrets.token_hex(4)}"
    folder.mkdir()
    (folder / "pids.max").write_text(str(processes))
    enter = f'echo 0 > {folder}/cgroup.procs && exec "$@"'
    try:
        yield OuterLimit(("sh", "-c", enter, "sh"), folder)
    finally:
        _remove(folder)


def _remove(folder: Path) -> None:
    until = time.monotonic() + EMPTY_S
    for inner in sorted(folder.rglob("*/"), reverse=True):
        if inner.is_dir():
            _remove_one(inner, until)
    _remove_one(folder, until)


def _remove_one(folder: Path, until: float) -> None:
    while True:
        try:
            folder.rmdir()
            return
        except OSError:
            left = (folder / "cgroup.procs").read_text().split()
            assert time.monotonic() < until, f"still in {folder}: {left}"
            time.sleep(0.05)


@contextmanager
def limit_on(folder: Path, processes: int) -> Iterator[OuterLimit]:
    """On a cgroup that is there already, with everything that will be made below it."""
    (folder / "pids.max").write_text(str(processes))
    yield OuterLimit((), folder)


def run_within(limit: OuterLimit, argv: Sequence[str]) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*limit.prefix, *argv], capture_output=True, timeout=60, check=False,
        stdin=subprocess.DEVNULL, env={"PATH": "/usr/bin:/bin"},
    )  # fmt: skip
