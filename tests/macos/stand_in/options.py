"""How a test starts a daemon whose sandbox-exec is the stand-in."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from macos.stand_in.census import NOTES_VARIABLE
from support.daemon import Daemon, running_daemon

HERE = Path(__file__).parent
MODULE = "macos.stand_in.daemon"


@contextmanager
def stand_in_daemon(
    *,
    program: Path | None = None,
    deny: str = "",
    env: Mapping[str, str] | None = None,
    **options: Any,
) -> Iterator[Daemon]:
    """`program`: another stand-in. Whoever runs it may write its notes.

    `deny`: the operation and target that every command's log says was refused.
    """
    notes = Path(tempfile.mkdtemp(prefix="sbx-stand-in-"))
    notes.chmod(0o777)  # notes of a namespace that is gone are removed by whoever gets its number
    (notes / "lock").touch(0o666)
    (notes / "log").touch()
    (notes / "log").chmod(0o666)
    if deny:
        (notes / "deny").write_text(deny)
    (notes / "sandbox-exec").symlink_to(program or HERE / "sandbox-exec")
    path = os.pathsep.join([str(HERE.parents[1]), os.environ.get("PYTHONPATH", "")])
    given = {"SANDBOXD_BACKEND": "sandbox-exec", NOTES_VARIABLE: str(notes), "PYTHONPATH": path}
    try:
        with running_daemon(module=MODULE, env={**given, **(env or {})}, **options) as daemon:
            yield daemon
    finally:
        shutil.rmtree(notes, ignore_errors=True)
