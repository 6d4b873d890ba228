"""A command lowers the limits of the sandbox's init, which then would not find what it must end."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from support.attacks import Box, python

pytestmark = pytest.mark.isolation

# Few open files for each process that can be reached, then orphans that write a protected file.
SCRIPT = python(
    """
    import resource
    changed = 0
    for pid in [1, 2, 3, 4, 5, 6]:
        if pid in (os.getpid(), os.getppid()) and pid != 1:
            continue
        try:
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (int(args[0]), int(args[0])))
            changed += 1
        except OSError:
            pass
    with open("changed", "w") as file:
        file.write(str(changed))
    for _ in range(3):
        if os.fork() == 0:
            os.setsid()
            for number in range(3):
                os.close(number)
            while True:
                try:
                    os.close(os.open(".envrc", os.O_CREAT | os.O_WRONLY, 0o644))
                except OSError:
                    pass
    time.sleep(0.05)
"""
)


@pytest.mark.parametrize("syscalls", ["baseline", "inherit"])
@pytest.mark.parametrize("files", [0, 5, 6, 7, 8, 10, 16])
def test_nothing_is_left_of_a_command_that_lowers_the_limits_of_the_init(
    box: Box, workspace: Path, files: int, syscalls: str
) -> None:
    manifest = {"syscall_policy": syscalls, "timeout": 20}
    params = {"preset": "workspace-write", "workspace": str(workspace), "cwd": str(workspace)}
    ran = box.run(*SCRIPT, str(files), manifest=manifest, **params)
    assert (workspace / "changed").read_text() == "0", ran.story
    for _ in range(20):
        assert not (workspace / ".envrc").exists()
        time.sleep(0.01)
