"""Where pip is configured to find packages without a network: folders, `file:` indexes, `no-index`.

The files that say it (pip.conf) can hold tokens and are hidden in a sandbox. These settings hold
none, so they are passed on as variables. pip is not asked: that takes longer than a command.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_SOURCES = ("index-url", "extra-index-url", "find-links")
_NO_INDEX = "no-index"
_SECTIONS = ("global", "download", "wheel", "install")  # the most usual command last
_ON = ("1", "true", "yes", "on", "t", "y")


def local_sources(files: Iterable[str], environment: Mapping[str, str]) -> dict[str, str]:
    """`files`: of settings, the one that counts most last. Without what needs a network. `no-index`
    only where pip has no other source then."""
    settings = _settings(files, environment)
    words = {key: settings[key].split() for key in _SOURCES if key in settings}
    local = {key: " ".join(filter(_is_local, found)) for key, found in words.items()}
    sources = words.get("find-links", ())
    if settings.get(_NO_INDEX, "").lower() in _ON and all(map(_is_local, sources)):
        local[_NO_INDEX] = "1"
    return {_variable(key): value for key, value in local.items() if value}


def _settings(files: Iterable[str], environment: Mapping[str, str]) -> dict[str, str]:
    """A variable counts before a file, and the last file before others, as for pip."""
    found: dict[str, str] = {}
    for path in files:
        found |= _read(path)
    named = ((key, environment.get(_variable(key))) for key in (*_SOURCES, _NO_INDEX))
    return found | {key: value for key, value in named if value is not None}


def _variable(key: str) -> str:
    return f"PIP_{key.upper().replace('-', '_')}"


def _read(path: str) -> dict[str, str]:
    """Without configparser and contextlib, which load more than all the rest of a `run`."""
    sections: dict[str, dict[str, str]] = {name: {} for name in _SECTIONS}
    section: dict[str, str] = {}
    key = ""
    for line in _lines(path):
        text = line.strip()
        if text[:1] in ("", "#", ";"):
            continue
        if line[0].isspace() and key:
            section[key] += f" {text}"
        elif text[0] == "[":
            section, key = sections.get(text.strip("[]"), {}), ""
        else:
            key, _, value = (part.strip() for part in text.partition("="))
            section[key] = value
    return {key: value for one in sections.values() for key, value in one.items()}


def _lines(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.readlines()
    except OSError:
        return []


def _is_local(word: str) -> bool:
    return "://" not in word or word.startswith("file:")
