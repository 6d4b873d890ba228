"""Where pip is configured to find packages without a network: folders, `file:` indexes, `no-index`.

The files that say it (pip.conf) can hold tokens and are hidden in a sandbox. These settings hold
none, so they are passed on as variables. pip is not asked: that takes longer than a command.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_SOURCES = ("index-url", "extra-index-url", "find-links")
_NO_INDEX = "no-index"
_ON = ("1", "true", "yes", "on", "t", "y")


def local_sources(environment: Mapping[str, str]) -> dict[str, str]:
    """Without what needs a network. `no-index` only where pip has no other source then."""
    settings = _settings(environment)
    words = {key: settings[key].split() for key in _SOURCES if key in settings}
    local = {key: " ".join(filter(_is_local, found)) for key, found in words.items()}
    sources = words.get("find-links", ())
    if settings.get(_NO_INDEX, "").lower() in _ON and all(map(_is_local, sources)):
        local[_NO_INDEX] = "1"
    return {_variable(key): value for key, value in local.items() if value}


def _settings(environment: Mapping[str, str]) -> dict[str, str]:
    """A variable counts before a file, and the last file before others, as for pip."""
    found: dict[str, str] = {}
    for path in filter(os.path.isfile, _files(environment)):
        found |= _read(path)
    named = ((key, environment.get(_variable(key))) for key in (*_SOURCES, _NO_INDEX))
    return found | {key: value for key, value in named if value is not None}


def _variable(key: str) -> str:
    return f"PIP_{key.upper().replace('-', '_')}"


def _files(environment: Mapping[str, str]) -> Iterator[str]:
    """A user's own. Those of the machine and of a virtual environment are seen in the sandbox."""
    home = environment.get("HOME", "/")
    config = environment.get("XDG_CONFIG_HOME") or os.path.join(home, ".config")
    yield os.path.join(home, ".pip", "pip.conf")
    yield os.path.join(config, "pip", "pip.conf")
    yield environment.get("PIP_CONFIG_FILE", "")


def _read(path: str) -> dict[str, str]:
    from configparser import Error, RawConfigParser

    parser = RawConfigParser()
    try:
        parser.read(path, encoding="utf-8")
    except (Error, UnicodeDecodeError):
        return {}
    sections = ("global", "download", "wheel", "install")  # the most usual command last
    return {key: value for one in sections if one in parser for key, value in parser[one].items()}


def _is_local(word: str) -> bool:
    return "://" not in word or word.startswith("file:")
