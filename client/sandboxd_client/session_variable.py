"""`SANDBOXD_SESSION=se-…:TOKEN`: the session that this process belongs to."""

from __future__ import annotations

import os

VARIABLE = "SANDBOXD_SESSION"


def from_environment() -> tuple[str, str] | None:
    """The session and its token; None if the variable is not set or empty."""
    given = os.environ.get(VARIABLE)
    return parse(given, VARIABLE) if given else None


def parse(given: str, source: str) -> tuple[str, str]:
    """`source`: the variable or the flag that the text is from, for the error."""
    session, _, token = given.partition(":")
    if not session or not token:
        from sandboxd_proto.errors import InvalidParams  # only then: it imports typing

        raise InvalidParams(
            f"{source} is not a session with its token", field=source,
            remedy=f"give {source} as se-…:TOKEN, or leave it out",
        )  # fmt: skip
    return session, token
