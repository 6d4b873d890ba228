"""Errors for requests that hit a limit of this machine: processes, threads, open files."""

from __future__ import annotations

import errno
import os

from sandboxd_proto.errors import Busy

_NO_MORE_FILES = {errno.EMFILE, errno.ENFILE, getattr(errno, "ETOOMANYREFS", errno.EMFILE)}
NO_THREAD = "can't start new thread"  # Python raises a RuntimeError for it


def process_limit_error(what: str) -> Busy:
    """EAGAIN of fork: a limit on the number of processes or threads is reached."""
    return Busy(
        f"{what}: no more processes can be made here now ({os.strerror(errno.EAGAIN)})",
        remedy="end some processes, or raise the limit of this user (ulimit -u) or of the "
        "container or unit around the daemon (pids.max, TasksMax), and send the request again",
    )


def resource_error(error: Exception) -> Busy | None:
    """None if it is no sign of a limit."""
    if isinstance(error, OSError) and error.errno in _NO_MORE_FILES:
        reason = f"the daemon can open no more files now ({error.strerror})"
        return Busy(reason, remedy="send the request again when other clients have ended")
    if isinstance(error, RuntimeError) and NO_THREAD in str(error):
        return process_limit_error("the daemon could not start a thread")
    return None
