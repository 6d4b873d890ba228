"""Whether a path is one of the secrets that are hidden by default, or lies in one."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from sandboxd.platform.current import places
from sandboxd.policy.data import secrets, secrets_macos
from sandboxd.policy.paths.within import is_below, within_any

SYSTEM = tuple(path for group in secrets.SYSTEM for path in group.paths)
_GROUPS = (*secrets.HOME, *(secrets_macos.HOME if sys.platform == "darwin" else ()))
HOME = (
    *(path for group in _GROUPS for path in group.paths),
    *(path for _, paths in places.SECRETS for path in paths),
)
LINKS_IN_FOLDERS = frozenset(
    path for group in _GROUPS if group.links_in_folders for path in group.paths
)
_NAMES = frozenset(HOME)


def is_secret(path: str, people: Iterable[str]) -> bool:
    """`people`: home folders. By name only: a secret that a link leads to elsewhere is not seen."""
    if within_any(path, SYSTEM):
        return True
    for home in people:  # one can lie in another
        if is_below(path, home):
            parts = path[len(home) + 1 :].split("/")
            if any("/".join(parts[:count]) in _NAMES for count in range(1, len(parts) + 1)):
                return True
    return False
