"""The secret that proves the role of an approver, and how many wrong ones are tried."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from sandboxd_proto.errors import Unauthorized
from sandboxd_proto.secret import Secret

MOST_WRONG_TOKENS = 5
WRONG_TOKENS_S = 60.0


class ApproverToken:
    def __init__(self, secret: Secret) -> None:
        self._secret = secret
        self._wrong: list[float] = []

    def require(self, token: Secret | None) -> None:
        """After five wrong tokens in a minute every token is refused for the rest of it."""
        now = time.monotonic()
        self._wrong = [at for at in self._wrong if now - at < WRONG_TOKENS_S]
        if len(self._wrong) >= MOST_WRONG_TOKENS:
            why = "too many wrong tokens: wait a minute"
            raise Unauthorized(why, reason="token", field="token")
        if token is None or not self._secret.matches(token):
            self._wrong.append(now)
            raise Unauthorized(
                "this is not the approver's token", reason="token", field="token",
                remedy="read it from the file beside the socket: <socket>.approver",
            )  # fmt: skip


@contextmanager
def approver_token(path: str) -> Iterator[ApproverToken]:
    """A new secret at every start, in a file that only this user can read and no sandbox sees."""
    secret = Secret(os.urandom(32).hex())
    with suppress(FileNotFoundError):
        os.unlink(path)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    flags |= getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)
    with open(os.open(path, flags, 0o600), "w", encoding="ascii") as file:
        file.write(secret.reveal())
    try:
        yield ApproverToken(secret)
    finally:
        with suppress(OSError):
            os.unlink(path)
