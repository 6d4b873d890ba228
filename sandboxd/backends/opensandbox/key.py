"""The API key: from a file that only its owner can read, or from the config. Never shown."""

from __future__ import annotations

import os
import stat
import sys

from sandboxd.config.config import OpenSandboxConfig
from sandboxd_proto.errors import SandboxUnavailable
from sandboxd_proto.secret import Secret

KEY_MAX = 4096


def load_key(config: OpenSandboxConfig) -> Secret:
    """An empty Secret where none is configured. SandboxUnavailable for a key that is no key."""
    text = _from_file(config.api_key_file) if config.api_key_file else config.api_key.strip()
    if not text.isascii() or not text.isprintable():
        raise SandboxUnavailable(
            "the OpenSandbox API key has characters that no HTTP header can have",
            remedy="the key is one line of printable ASCII",
        )
    return Secret(text)


def _from_file(path: str) -> str:
    path = os.path.expanduser(path)
    try:
        # Not blocking: the path may be a FIFO.
        fd = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except OSError as error:
        raise _file_error(path, f"cannot be read: {os.strerror(error.errno or 0)}") from None
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise _file_error(path, "is not a regular file")
        if sys.platform != "win32":
            if status.st_uid not in (0, os.geteuid()):
                raise _file_error(path, "belongs to another user")
            if status.st_mode & 0o077:
                raise _file_error(path, f"can be read by others (mode {status.st_mode & 0o777:o})")
        data = os.read(fd, KEY_MAX + 1)
    finally:
        os.close(fd)
    if not data.strip() or len(data) > KEY_MAX:
        raise _file_error(path, "is empty" if not data.strip() else "is too long for a key")
    return data.decode("utf-8", "replace").strip()


def _file_error(path: str, what: str) -> SandboxUnavailable:
    return SandboxUnavailable(
        f"the file of the OpenSandbox API key, {path}, {what}",
        remedy=f"write the key into it, then: chmod 600 {path}",
    )
