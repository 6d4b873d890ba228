"""The secret that proves the role of an approver."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from sandboxd_proto.secret import Secret


@contextmanager
def approver_token(path: str) -> Iterator[Secret]:
    """A new secret at every start, in a file that only this user can read and no sandbox sees."""
    token = Secret(os.urandom(32).hex())
    with suppress(FileNotFoundError):
        os.unlink(path)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    flags |= getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)
    with open(os.open(path, flags, 0o600), "w", encoding="ascii") as file:
        file.write(token.reveal())
    try:
        yield token
    finally:
        with suppress(OSError):
            os.unlink(path)
