"""Ids of executions that a client chooses, so that it can route their events from the first on."""

from __future__ import annotations

import os


def new_id() -> str:
    return f"py-{os.getpid()}-{os.urandom(8).hex()}"
