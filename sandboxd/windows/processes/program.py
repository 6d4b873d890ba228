"""From a command to what CreateProcess takes: the program's file, its line, its environment."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable

from sandboxd.platform.windows.paths import native
from sandboxd.types import Command
from sandboxd.windows.processes import quoting
from sandboxd.windows.processes.spawn import SpawnProgram
from sandboxd_proto.errors import ExecFailed

assert sys.platform == "win32"


def program_for(command: Command, temporary: str, is_file: Callable[[str], bool]) -> SpawnProgram:
    """ExecFailed where the program does not exist or its arguments cannot be passed."""
    root = os.environ.get("SYSTEMROOT", "C:\\Windows")
    env = quoting.needed_pairs(command.env, root, temporary)
    cwd = native(command.cwd)
    name, *arguments = command.argv
    image = quoting.find_program(name, env, cwd, is_file)
    if image is None:
        raise ExecFailed(
            f"{name}: no such program in the PATH of the manifest", errno=errno.ENOENT,
            remedy="give the program's full path, or a PATH in the manifest's env",
        )  # fmt: skip
    try:
        if quoting.is_batch(image):
            shell = os.path.join(root, "System32", "cmd.exe")
            line, image = quoting.batch_line(shell, image, arguments), shell
        else:
            line = quoting.command_line([image, *arguments])
    except quoting.QuotingError as error:
        raise ExecFailed(f"{name}: {error}", errno=errno.EINVAL) from None
    return SpawnProgram(image, line, quoting.environment_block(env), cwd)


def exec_failed(name: str, error: OSError) -> ExecFailed:
    return ExecFailed(
        f"{name}: {error.strerror} (Windows error {error.winerror})", errno=error.errno or 0
    )
