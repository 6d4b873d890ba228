"""A command writes beside the workspace, which is too small: it was started in a subfolder of a
project without git."""

from __future__ import annotations

import os
import sys

from sandboxd_client.cli.denial_lines import AROUND_WORKSPACE
from sandboxd_client.cli.plain_text import quote
from sandboxd_client.cli.workspace import git_root, here, workspace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from sandboxd_client.cli.parse import Options

_CHOSEN = ("--workspace", "--manifest", "--sandbox", "--preset")


def after_run(options: Options, result: dict[str, Any]) -> str | None:
    written = [d for d in result.get("denials") or [] if d.get("kind") == "filesystem_write"]
    return wider_workspace(options, _refused(written, "message"))


def after_explain(options: Options, explanation: dict[str, Any]) -> str | None:
    written = [need for need in explanation.get("needs", []) if need.get("access") == "write"]
    return wider_workspace(options, _refused(written, "note"))


def _refused(found: Iterable[dict[str, Any]], text: str) -> list[str]:
    return [str(one.get("target")) for one in found if AROUND_WORKSPACE in str(one.get(text))]


def wider_workspace(options: Options, targets: Iterable[str]) -> str | None:
    """`targets`: what was to be written in a folder that holds the workspace. The folder is named
    as a workspace, where protected files stay protected."""
    if any(map(options.has, _CHOSEN)) or git_root() is not None:
        return None  # what lies around a repository is another project
    current = here()
    for target in targets:
        folder = os.path.dirname(target)
        while not os.path.isdir(folder) and len(folder) > 1:
            folder = os.path.dirname(folder)
        if _holds(folder, current) and _can_be_workspace(folder):
            return (
                f"the workspace is only {current}, because no git repository holds it: if "
                f"{folder} is the project, add --workspace {quote(folder)}"
            )
    return None


def _holds(folder: str, inner: str) -> bool:
    return os.path.realpath(inner).startswith(f"{os.path.realpath(folder)}{os.sep}")


def _can_be_workspace(folder: str) -> bool:
    from sandboxd_client.cli.parse import UsageError

    try:
        workspace(folder)
        return sys.platform == "win32" or os.stat(folder).st_uid == os.getuid()
    except (UsageError, OSError):
        return False
