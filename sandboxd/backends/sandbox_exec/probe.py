"""The probe's commands: a write that must work, one that must fail, a process that escapes."""

from __future__ import annotations

import os

import anyio

from sandboxd.backends.interface import Unavailable
from sandboxd.backends.sandbox_exec import diagnosis
from sandboxd.macos.process import SandboxExecProcess
from sandboxd.policy.plan import Limits
from sandboxd.types import Command, Sandbox, Stdio

# Subshells: a redirection that fails ends a POSIX shell. With job control (set -m) the background
# process has a process group of its own; its parent ends at once, so it is a child of launchd.
_SCRIPT = """
(: > "$TMPDIR/probe") || exit 3
wrote=0
(: > "$FORBIDDEN") 2> /dev/null && wrote=4
set -m
(sleep 60 &)
exit $wrote
"""
_WROTE = 4
LOOK_S, MOST_LOOKS = 0.01, 200


async def fault(sandbox: Sandbox, forbidden_folder: str, *, isolates: bool) -> Unavailable | None:
    """What does not hold; None when everything does. The escaped process is ended in any case."""
    forbidden = os.path.join(forbidden_folder, "probe")
    command = Command(
        argv=("/bin/sh", "-c", _SCRIPT),
        env=(("PATH", "/usr/bin:/bin"), ("FORBIDDEN", forbidden)),
        cwd="/",
        limits=Limits(),
        syscall_policy="inherit",
        keep_background=True,
    )
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    try:
        process = await sandbox.spawn(command, Stdio(null, null, null))
    finally:
        os.close(null)
    assert isinstance(process, SandboxExecProcess)
    try:
        report = await process.wait(tree=False)
        if report.exit_code == _WROTE:
            os.unlink(forbidden)
            if isolates:
                return diagnosis.NOT_CONFINED
        elif report.exit_code != 0:
            return Unavailable(
                f"the probe's command ended with {report.exit_code or report.signal}",
                "run `sandboxctl doctor`, and report the version of macOS",
            )
        return None if await _found(process) else diagnosis.NOT_FOUND_AGAIN
    finally:
        await process.end()
        process.close()


async def _found(process: SandboxExecProcess) -> bool:
    for _ in range(MOST_LOOKS):
        if process.members():
            return True
        await anyio.sleep(LOOK_S)
    return False
