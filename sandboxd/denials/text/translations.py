"""The C library's own translations of its messages, read from its message catalogs.

Programs print strerror, gai_strerror and strsignal in the user's language. No list can hold those
by hand for every language; the catalogs that the programs themselves use are on the machine.
"""

from __future__ import annotations

import gettext
import os
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache

from sandboxd.denials.text.phrases import COMMON

CATALOGS = "/usr/share/locale"
_VARIABLES = ("LANGUAGE", "LC_ALL", "LC_MESSAGES", "LANG")
_SET_IN_COMMAND = re.compile(r"\b(?:LANGUAGE|LC_ALL|LC_MESSAGES|LANG)=[\"']?([\w@.:-]+)")
_LANGUAGE = re.compile(r"[A-Za-z]{2,3}(?:_[A-Za-z]{2})?(?:@\w+)?\Z")
_MAX_LANGUAGES = 6

Translations = Mapping[str, tuple[str, ...]]


def languages_of(env: Iterable[tuple[str, str]], argv: Iterable[str] = ()) -> tuple[str, ...]:
    """Which languages a command may print in: its environment's, and those it sets itself."""
    values = [value for name, value in env if name in _VARIABLES]
    for word in argv:
        values += _SET_IN_COMMAND.findall(word[:65536])
    found: dict[str, None] = {}
    for value in values:
        for one in value.split(":"):
            language, at, modifier = one.partition("@")
            language = language.partition(".")[0]
            for spelling in (f"{language}{at}{modifier}", language, language.partition("_")[0]):
                if spelling not in {"C", "POSIX", "en"} and _LANGUAGE.match(spelling):
                    found[spelling] = None
    return tuple(found)[:_MAX_LANGUAGES]


@lru_cache(maxsize=64)
def load_translations(languages: tuple[str, ...], catalogs: str = CATALOGS) -> Translations:
    """msgid → its texts in these languages. A language without a catalog has none."""
    texts: dict[str, list[str]] = {}
    for language in languages:
        catalog = _catalog(os.path.join(catalogs, language, "LC_MESSAGES", "libc.mo"))
        if catalog is None:
            continue
        for sign in COMMON:
            for msgid in sign.libc:
                text = catalog.gettext(msgid)
                if text and text != msgid:
                    texts.setdefault(msgid, []).append(text)
    return {msgid: tuple(dict.fromkeys(found)) for msgid, found in texts.items()}


def _catalog(path: str) -> gettext.GNUTranslations | None:
    try:
        with open(path, "rb") as file:
            return gettext.GNUTranslations(file)
    except (OSError, ValueError, UnicodeError, LookupError):
        return None
