"""After pip could not change a virtual environment: what it needs of it, and what to do instead."""

from __future__ import annotations

import os

from sandboxd_client.cli.plain_text import quote
from sandboxd_client.cli.workspace import shown_folders

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from sandboxd_client.cli.parse import Options

_MARK = "pyvenv.cfg"


def outside_of(options: Options, denials: Sequence[dict[str, Any]]) -> str | None:
    """For one that lies outside of the workspace: pip writes its packages and its programs, so one
    folder of it does not do."""
    workspace = shown_folders(options)[0]
    targets = [str(d.get("target")) for d in denials if d.get("kind") == "filesystem_write"]
    found = next(filter(None, map(_environment, targets)), None)
    if found is None or f"{found}/".startswith(f"{workspace}/"):
        return None
    return (
        f"{quote(found)} is a virtual environment outside of the workspace: make one inside, "
        "python3 -m venv .venv, and use .venv/bin/pip. Or let the command change that one, if "
        f"nothing that you trust runs from it: add --write {quote(found)}"
    )


def _environment(path: str) -> str | None:
    while path.startswith("/") and path != "/":
        path = os.path.dirname(path)
        if os.path.isfile(os.path.join(path, _MARK)):
            return path
    return None
