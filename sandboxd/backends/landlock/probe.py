"""The probe's command: one write that must work, and one that must be refused."""

from __future__ import annotations

import os

from sandboxd.policy.plan import Limits
from sandboxd.types import Command, Sandbox, Stdio

# Subshells: a redirection that fails ends a POSIX shell.
_SCRIPT = '(: > "$TMPDIR/probe") || exit 3; (: > "$FORBIDDEN") 2> /dev/null && exit 4; exit 0'


async def confines(sandbox: Sandbox, forbidden_folder: str) -> bool:
    """The forbidden folder is the daemon's own: without Landlock the command could write there."""
    forbidden = os.path.join(forbidden_folder, "probe")
    command = Command(
        argv=("/bin/sh", "-c", _SCRIPT),
        env=(("PATH", "/usr/bin:/bin"), ("FORBIDDEN", forbidden)),
        cwd="/",
        limits=Limits(),
        syscall_policy="baseline",
    )
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    try:
        process = await sandbox.spawn(command, Stdio(null, null, null))
    finally:
        os.close(null)
    try:
        report = await process.wait()
    finally:
        process.close()
    return report.exit_code == 0
