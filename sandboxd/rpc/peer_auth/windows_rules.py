"""Which client of a named pipe is refused, by the facts of its token. Pure.

A fact that the system does not say counts against the client.
"""

from __future__ import annotations

import msgspec

from sandboxd.windows.integrity import level
from sandboxd_proto.errors import Unauthorized

_SANDBOXED = "a command of this daemon may not use the daemon"


class PeerToken(msgspec.Struct, frozen=True):
    """`integrity` is empty and `app_container` None where the system does not say it."""

    user: str
    integrity: str
    app_container: bool | None


def refuse(
    token: PeerToken, user: str, own_integrity: str, in_our_job: bool | None
) -> Unauthorized | None:
    """`user`, `own_integrity`: the daemon's. `in_our_job`: None where it cannot be told.

    A command never has a higher integrity than the daemon, so such a client is no command; the
    daemon may not be permitted to look at its process.
    """
    if token.user != user:
        return Unauthorized(
            "this daemon serves its own user only", remedy="start a sandboxd of your own"
        )
    if token.app_container is not False:
        return Unauthorized(_SANDBOXED, remedy="connect from outside the sandbox")
    theirs, ours = level(token.integrity), level(own_integrity)
    if theirs < ours or theirs == 0:
        return Unauthorized(
            "the peer runs at a lower integrity than the daemon",
            remedy="connect from outside the sandbox, or start sandboxd without elevation",
        )
    if in_our_job or (in_our_job is None and theirs == ours):
        return Unauthorized(_SANDBOXED, remedy="connect from outside the sandbox")
    return None
