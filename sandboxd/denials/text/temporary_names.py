"""Paths in folders for temporary files that a command line names, and does not use again.

A guess from the text: whoever asks looks whether something is there. What programs get for their
own temporary files (TMPDIR, --cache-dir, HOME) is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from posixpath import basename, join, normpath

from sandboxd.denials.text.command_line import CommandLine, Simple
from sandboxd.denials.text.known_programs import written
from sandboxd.policy.paths.within import within, within_any

SHM = "/dev/shm"
PLACES = ("/tmp", "/var/tmp", SHM)
_MOST = 16
# At the start of a word, after a sign (`--prefix=/tmp/x`) or a short option (`-o/tmp/x`).
_PATH = re.compile(
    r"(?:(?<![\w.~})-])|(?<=\s-\w))/(?:var/tmp|tmp|dev/shm)/[^\s'\"`;,|&<>()$*?\[\]{}:\\]+"
)
_PARENT = re.compile(
    r"(?:(?<![\w.~})/-])|(?<=\s-\w))\.\.(?:/[^\s'\"`;,|&<>()$*?\[\]{}:\\]*|(?=[\s'\"`;,|&<>):]|\Z))"
)
_KEY = re.compile(r"(-?[\w-]+)[=\s]\s{0,4}['\"]?\Z")
_SCRATCH = re.compile(
    r"-T\Z|XDG_|.*(?:te?mp(?:[-_]?(?:dir|file|path|folder))?|home|scratch)\Z|.*cache", re.IGNORECASE
)
_ASSIGNED = re.compile(r"(?<![\w-])([A-Za-z_]\w*)=['\"]?\Z")
_LONGEST_KEY = 64


def place_of(path: str) -> str | None:
    """The folder for temporary files that `path` lies in; None for that folder itself."""
    return next((place for place in PLACES if path.startswith(f"{place}/")), None)


def with_absolute_parents(argv: Sequence[str], cwd: str) -> tuple[str, ...]:
    """With `../x` as an absolute path, where that lies in a folder for temporary files."""
    if place_of(cwd) is None:
        return tuple(argv)
    return tuple(_PARENT.sub(lambda match: normpath(join(cwd, match[0])), word) for word in argv)


def left_for_later(command: CommandLine, cwd: str, kept: Sequence[str]) -> tuple[str, ...]:
    """Paths that the command may have made there. `kept`: folders that stay after it."""
    copies = dict.fromkeys(_below_folders(command, cwd, kept))
    named = dict.fromkeys(_absolute(command))
    # What was copied there and is named as well was used.
    found = [path for path in (*named, *copies) if path not in named or path not in copies]
    return tuple(path for path in found if not within_any(path, kept))[:_MOST]


def _absolute(command: CommandLine) -> Iterator[str]:
    text = command.text
    if command.script is None:
        yield from (normpath(word) for word in command.argv[1:] if place_of(word) and " " in word)
    for match in _PATH.finditer(text):
        path = normpath(match[0].rstrip("/."))
        before = text[max(0, match.start() - _LONGEST_KEY) : match.start()]
        key = _KEY.search(before)
        if place_of(path) is None or (key is not None and _SCRATCH.match(key[1])):
            continue
        if not _is_used_again(command, path) and not _is_used_by_variable(text, before):
            yield path


def _is_used_again(command: CommandLine, path: str) -> bool:
    """Named more than once, and last as something other than what a program writes."""
    times = len(re.findall(re.escape(path) + r"(?![\w.-])", command.text))
    if times <= 1:
        return False
    naming = [one for one in command.simple if path in map(normpath, _words(one))]
    named = sum(list(map(normpath, _words(one))).count(path) for one in naming)
    return named != times or path not in map(normpath, written(naming[-1]))


def _words(one: Simple) -> tuple[str, ...]:
    return tuple(word for word in (*one.words, *one.writes_to) if word)


def _is_used_by_variable(text: str, before: str) -> bool:
    assigned = _ASSIGNED.search(before)
    if assigned is None:
        return False
    return len(re.findall(rf"\$\{{?{assigned[1]}\b", text)) > 1


def _below_folders(command: CommandLine, cwd: str, kept: Sequence[str]) -> Iterator[str]:
    """`cd /tmp && tool out`; and what is copied into such a folder, which keeps its name."""

    def ends(path: str) -> bool:
        return any(within(path, place) for place in PLACES) and not within_any(path, kept)

    where = cwd
    for one in command.simple:
        if one.program in {"cd", "pushd"}:
            where = normpath(join(where, one.words[0])) if one.words else where
            continue
        values = [_value(word) for word in (*one.words, *one.writes_to)]
        folders = [folder for folder in (where, *map(normpath, values)) if ends(folder)]
        for value in values if folders else ():
            name = basename(normpath(value)).removesuffix(".git")
            if not value or "$" in value or name in {"", ".", ".."} or ends(normpath(value)):
                continue
            if where in folders and _times(command.text, name) > 1:
                continue
            if where in folders and not value.startswith(("/", "~")):
                yield normpath(join(where, value))
            yield from (join(folder, name) for folder in folders)


def _value(word: str) -> str:
    return word.partition("=")[2] if word.startswith("-") else word


def _times(text: str, name: str) -> int:
    return len(re.findall(rf"(?<![\w.-]){re.escape(name)}(?![\w-]|\.(?!git\b)\w)", text))
