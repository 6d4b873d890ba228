"""Why an engine could not execute a command, as the error that every backend gives."""

from __future__ import annotations

import errno

from sandboxd.backends.docker.engine import EngineError
from sandboxd.linux.exec_failure import exec_failed
from sandboxd.linux.init_wire import ExecStage
from sandboxd.sandbox import Command
from sandboxd_proto.errors import SandboxdError

# runc's words; an engine has no other way to say which of them it was.
_ERRNOS = (
    ("executable file not found", errno.ENOENT),
    ("no such file or directory", errno.ENOENT),
    ("permission denied", errno.EACCES),
    ("exec format error", errno.ENOEXEC),
    ("argument list too long", errno.E2BIG),
)


def refusal_to_run(command: Command, error: EngineError) -> SandboxdError | None:
    """None: it was something else that the engine refused."""
    if "exec" not in error.message:
        return None
    for words, number in _ERRNOS:
        if words in error.message:
            return exec_failed(command, ExecStage.EXEC, number, command.argv[0])
    return None
