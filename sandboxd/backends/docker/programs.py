"""Which program a command is, in a container that is not running yet.

Below the engine's own init a program that cannot be executed looks like one that exits with 127, so
it is looked for beforehand, in the same places as everywhere: the command's own PATH.
"""

from __future__ import annotations

import errno
import os

from sandboxd.backends.docker.engine import Engine, EngineError
from sandboxd.linux.exec_failure import exec_failed
from sandboxd.linux.init_wire import ExecStage
from sandboxd.sandbox import Command
from sandboxd_proto.errors import SandboxdError

SEARCH = "/usr/local/bin:/usr/bin:/bin"
_GO_DIR, _GO_SYMLINK = 1 << 31, 1 << 27  # the engine reports modes as Go does
# runc's words, where there is no init of the engine's.
_ERRNOS = (
    ("executable file not found", errno.ENOENT),
    ("no such file or directory", errno.ENOENT),
    ("permission denied", errno.EACCES),
    ("exec format error", errno.ENOEXEC),
    ("argument list too long", errno.E2BIG),
)


async def locate(engine: Engine, container: str, command: Command) -> str:
    """The absolute path of the program. ExecFailed when there is none that can be executed."""
    name = command.argv[0]
    number = errno.ENOENT
    for path in _candidates(command):
        mode = await engine.mode_of(container, path)
        if mode is None:
            continue
        if mode & _GO_SYMLINK or (mode & 0o111 and not mode & _GO_DIR):
            return path
        number = errno.EACCES
    raise exec_failed(command, ExecStage.EXEC, number, name)


def _candidates(command: Command) -> list[str]:
    name = command.argv[0]
    if "/" in name:
        return [os.path.normpath(os.path.join(command.cwd, name))]
    folders = dict(command.env).get("PATH", SEARCH).split(":")
    return [os.path.join(command.cwd, folder, name) for folder in folders]


def refusal_to_run(command: Command, error: EngineError) -> SandboxdError | None:
    """None: it was something else that the engine refused."""
    if "exec" not in error.message:
        return None
    for words, number in _ERRNOS:
        if words in error.message:
            return exec_failed(command, ExecStage.EXEC, number, command.argv[0])
    return None
