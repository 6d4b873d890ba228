"""Programs that git's settings name: where one lies in the workspace, a command could replace it.

A setting holds a command line for a shell. It is not parsed as one, and what is unclear counts:
every word that leads to a file, from the work tree or from any folder that the line names, and the
whole of a folder that the line changes to without naming a file in it.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections import deque
from collections.abc import Iterator
from itertools import pairwise

from sandboxd.policy.paths import recording_fs
from sandboxd.policy.paths.homes import expand
from sandboxd.policy.paths.within import is_below
from sandboxd.policy.protected import closed_ways

_MOST_GROUPS, _MOST_WORDS, _MOST_FOLDERS, _DEEPEST = 16, 64, 8, 3
# Settings whose value is a command line, by section.subsection.key with the key in lower case.
_COMMANDS = re.compile(
    r"core\.(fsmonitor|sshcommand|editor|pager|askpass|gitproxy|alternaterefscommand)"
    r"|sequence\.editor|pager\..+|interactive\.difffilter|credential(\..+)?\.helper"
    r"|gpg(\..+)?\.(program|defaultkeycommand)|filter\..+\.(clean|smudge|process)"
    r"|diff\.external|diff\..+\.(command|textconv)|merge\..+\.driver"
    r"|(difftool|mergetool|guitool|browser|man)\..+\.(cmd|path)|alias\..+"
    r"|trailer\..+\.(command|cmd)|uploadpack\.packobjectshook|sendemail(\..+)?\.[a-z]*cmd"
    r"|sendemail(\..+)?\.smtpserver|remote\..+\.(uploadpack|receivepack|vcs)"
    r"|tar\..+\.command|imap\.tunnel|instaweb\..+|receive\.procreceiverefs|hook\..+\.command"
    r"|submodule\..+\.update|lfs\..+\.(path|args|clean|smudge)"
)
# `ext::` runs the rest of an address.
_ADDRESS = re.compile(r"(remote\..+\.(push)?url|url\..+\.(push)?insteadof)")
_SEPARATORS = re.compile(r"[\s;|&<>()`$\"'=!{},:]+")
_HOME = re.compile(r"\$(HOME\b|\{HOME\})")
# Parts of a path that only a shell knows.
# No part is searched twice: the time stays linear for every line.
_UNKNOWN = re.compile(r"\$\{[^{}]*\}|\$\([^()]*\)|`[^`]*`|\$\w+")
_PATTERN = re.compile(r"[*?\[{]")
_ENTERS = frozenset(
    ("cd", "pushd", "-C", "--directory", "--prefix", "--chdir", "--cwd", "--project", "--dir")
)
_INTERPRETERS = re.compile(r"(?:.*/)?(?:python|node|deno|bun|ruby|perl|php|lua|java|tsx)[\d.]*")


def paths(
    key: str, value: str, base: str, workspace: str, homes: tuple[str, ...] = ()
) -> list[str]:
    """The absolute paths that this setting may name, for a repository with its files in `base`.

    A folder among them counts with all that is in it.
    """
    if not is_command(key, value):
        return []
    line = _Line(value if _COMMANDS.fullmatch(key) else f"{key} {value}", base, workspace, homes)
    found = list(line.files())
    if not key.startswith(
        "alias."
    ):  # runs when it is asked for: no reason to keep people from their work
        there = [path for path in found if recording_fs.isfile(path)]
        found += [f for f in line.folders() if not any(is_below(path, f) for path in there)]
    return list(dict.fromkeys(found))


def is_command(key: str, value: str) -> bool:
    """Whether this setting makes git run a program that its value names."""
    if _COMMANDS.fullmatch(key):
        return value[:1] == "!" or not key.startswith("alias.")
    return _ADDRESS.fullmatch(key) is not None and "ext::" in f"{key} {value}"


class _Line:
    def __init__(self, value: str, base: str, workspace: str, homes: tuple[str, ...]) -> None:
        self._homes = homes
        self._workspace = workspace
        self._bases = [base]
        self._groups = _groups(value)
        named = (path for words in self._groups for word in words for path in self._places(word))
        folders = (path for path in named if path != base and recording_fs.isdir(path))
        self._bases += list(dict.fromkeys(folders))[:_MOST_FOLDERS]

    def files(self) -> Iterator[str]:
        """`cat` is a program of PATH even if the workspace has such a file; in `sh run` it is one.

        A path that leads nowhere is one to be made.
        """
        for words in self._groups:
            for index, word in enumerate(words):
                for path in self._places(word):
                    is_named = "/" in word or (index > 0 and recording_fs.isfile(path))
                    if is_named and not recording_fs.isdir(path):
                        yield path

    def folders(self) -> Iterator[str]:
        """Those that the line works in, or that an interpreter runs, and those of patterns."""
        for words in self._groups:
            for before, word in pairwise(["", *words]):
                pattern = _PATTERN.search(word)
                if pattern is not None:
                    yield from self._dirs(word[: pattern.start()].rpartition("/")[0])
                elif before in _ENTERS or _INTERPRETERS.fullmatch(before):
                    yield from self._dirs(word)
                elif before == "-m":  # python -m package.module
                    module = word.replace(".", "/")
                    yield from self._dirs(module)
                    yield from filter(recording_fs.isfile, self._places(f"{module}.py"))

    def _dirs(self, word: str) -> Iterator[str]:
        return filter(recording_fs.isdir, self._places(word))

    def _places(self, word: str) -> Iterator[str]:
        """Where in the workspace it may lead."""
        if word in ("", ".", "..") or word.startswith("-"):
            return
        words = expand(word, self._homes)
        # What is left of `$TOP/tools/run` starts with a slash.
        for spelling in dict.fromkeys((*words, *(word.lstrip("/") for word in words))):
            for base in self._bases:
                said = posixpath.join(base, spelling)
                path = posixpath.normpath(said)
                if not is_below(path, self._workspace):
                    continue
                closed_ways.refuse_hidden(path)
                if spelling in words or recording_fs.lexists(path):
                    yield path
                    if "/../" in said:  # behind a link it leads elsewhere
                        yield said


def _groups(value: str) -> list[list[str]]:
    """The words of a shell, those inside of its quotes, and those between special characters."""
    value = _HOME.sub("~", value)
    known = value
    for _ in range(_DEEPEST):
        known = _UNKNOWN.sub("", known)
    found: list[list[str]] = []
    pending = deque([known, value])
    while pending and len(found) < _MOST_GROUPS:
        text = pending.popleft()
        try:
            words = shlex.split(text)
        except ValueError:
            words = []
        found += [words[:_MOST_WORDS], [w for w in _SEPARATORS.split(text) if w][:_MOST_WORDS]]
        pending += [word for word in words if word != text and " " in word]
    return found
