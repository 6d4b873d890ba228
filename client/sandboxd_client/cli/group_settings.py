"""With `--net group:node` and the like: the addresses that the tools are configured for here, as
variables. The files that hold them (~/.npmrc, pip.conf) hold tokens too, and are hidden in a
sandbox, where the tools would ask other hosts than the group allows.

Addresses only: without a user name and password, and none at all that holds what may be a token.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from urllib.parse import urlsplit, urlunsplit

from sandboxd_client.cli.host_groups import npm_settings, pip_settings

_PIP_KEYS = ("index-url", "extra-index-url", "find-links", "trusted-host", "no-index")
_LONG = re.compile(r"(?=[^0-9]*[0-9])(?=[^A-Za-z]*[A-Za-z])[A-Za-z0-9]{16,}")
_UUID = re.compile(r"[0-9a-f]{8}(?:-?[0-9a-f]{4}){3}", re.IGNORECASE)
_MOST_BYTES = 1 << 16


def settings(
    groups: Iterable[str], environment: Mapping[str, str], folders: Iterable[str]
) -> dict[str, str]:
    """`folders`: of the project; what a `.npmrc` there says is seen in the sandbox, and counts
    before a user's own."""
    found: dict[str, str] = {}
    if "group:python" in groups:
        found |= dict(_pip(environment))
    if "group:node" in groups:
        found |= dict(_npm(environment, folders))
    return found


def _pip(environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for key, value in pip_settings(environment):
        if key in _PIP_KEYS:
            words = [_public(word) for word in value.split()]
            if words and all(words):
                yield f"PIP_{key.upper().replace('-', '_')}", " ".join(filter(None, words))


def _npm(environment: Mapping[str, str], folders: Iterable[str]) -> Iterator[tuple[str, str]]:
    home = environment.get("HOME", "/")
    own = _keys(environment.get("NPM_CONFIG_USERCONFIG") or os.path.join(home, ".npmrc"))
    own |= {name.lower().removeprefix("npm_config_") for name in environment}
    project = {key for folder in folders for key in _keys(os.path.join(folder, ".npmrc"))}
    for key, value in npm_settings(environment):
        address = _public(value)
        if key in own and key not in project and address is not None:
            yield f"npm_config_{key}", address


def _keys(path: str) -> set[str]:
    """The keys that a `.npmrc` has."""
    with suppress(OSError), open(path, "rb") as file:
        lines = file.read(_MOST_BYTES).decode(errors="replace").splitlines()
        return {line.partition("=")[0].strip() for line in lines}
    return set()


def _public(address: str) -> str | None:
    """Without user name and password; None if a part of it may be a token."""
    try:
        parts = urlsplit(address)
        bare = parts._replace(netloc=parts.netloc.rpartition("@")[2])
    except ValueError:
        return None
    rest = f"{bare.path}?{bare.query}#{bare.fragment}"
    if _LONG.search(rest) or _UUID.search(rest) or "=" in bare.query:
        return None
    return urlunsplit(bare)
