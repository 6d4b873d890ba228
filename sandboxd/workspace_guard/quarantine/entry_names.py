"""The name of an entry in the kept folder: its path below the root, percent-encoded. Pure."""

from __future__ import annotations

import os

_LONGEST_NAME = 200


def entry_name(below: str) -> str:
    """`below`, with slashes, as one name without a dot in front of any part."""
    name = below.replace("%", "%25").replace("/", "%2F").replace("%2F.", "%2F%2E")
    if name.startswith("."):
        name = f"%2E{name[1:]}"
    if len(os.fsencode(name)) > _LONGEST_NAME:
        return below.rpartition("/")[2].lstrip(".")[:50] or "entry"
    return name
