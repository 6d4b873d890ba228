"""What every part of the bench shares: two daemons, a workspace, and how long to measure."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from support.daemon import Daemon, running_daemon

from bench.rows_daemon import Params

# The workspace is the common case; an empty manifest without network is the least there is.
MINIMAL: Params = {"manifest": {"network": "deny"}}
NO_POOL = "[pool]\nenabled = false\n"


@dataclass(frozen=True, slots=True)
class Size:
    """How much of everything. Quick figures are for developing the bench, not for reading."""

    rounds: int
    rate_s: float
    stream_bytes: int
    stream_turns: int
    growth_rounds: int


FULL = Size(rounds=40, rate_s=6.0, stream_bytes=1 << 30, stream_turns=2, growth_rounds=8)
QUICK = Size(rounds=6, rate_s=1.2, stream_bytes=64 << 20, stream_turns=2, growth_rounds=2)


@dataclass(frozen=True, slots=True)
class Place:
    """`warm` keeps sandboxes ready, `cold` never does; else they are the same."""

    folder: Path
    policy: Params
    warm: Daemon
    cold: Daemon
    size: Size


@contextmanager
def made_place(preset: str, size: Size) -> Iterator[Place]:
    with ExitStack() as held:
        name = held.enter_context(tempfile.TemporaryDirectory(prefix="sbxd-bench-"))
        folder = Path(name).resolve()
        workspace = folder / "workspace"
        workspace.mkdir()
        warm = held.enter_context(running_daemon())
        cold = held.enter_context(running_daemon(config=NO_POOL))
        policy = {"preset": preset, "workspace": str(workspace)}
        yield Place(folder, policy, warm, cold, size)
