"""Which names a message is about: paths in quotes, beside the reason, or standing alone.

Programs agree on little more than `subject: reason` and on putting names into quotes. Each way of
naming is one small function; `names` puts them in order of how surely they are the subject.
"""

from __future__ import annotations

import re
from itertools import islice
from urllib.parse import unquote

MAX_NAME = 4096
MAX_WORDS = 256
MAX_NAMES = 12  # of one line: no program complains about more at once

# A quote opens after a blank or a bracket and closes before one: the apostrophe of "can't" does
# neither (Korean puts a particle right behind the closing one, hence ASCII letters only). coreutils
# prints ‘…’ or '…', old GNU programs `…', cargo `…`, other languages the rest.
_OPENING = re.compile(r"(?:(?<=[\s(\[=:,<])|^)[‘“„‚«「»”’'\"`]")
_CLOSING = {
    "‘": "’", "“": "”", "„": "“”", "‚": "‘’", "«": "»", "「": "」", "»": "«", "”": "”", "’": "’",
    "'": "'", '"': '"', "`": "`'",
}  # fmt: skip
_WORD = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")
_ABSOLUTE = re.compile(r"(?:(?<=[\s=(\[<'\"`:,])|^)(/[^\s'\"`,;()\[\]{}<>|*?]*)")
_DRIVE = re.compile(r"(?<![\w])([A-Za-z]:\\[^'\"<>|?*\r\n]*)")
_FILE_URL = re.compile(r"(?:file|unix)://(?:localhost)?(/[^\s'\"<>]*)")
_OS_ERROR = re.compile(r"^\s*\(os error \d+\)")
_NUMBER = re.compile(r"(?:\[Errno -?\d+\]|\(\d+:)\s*$")  # Python, apt
_REMARK = re.compile(r" - | \(")
_TRAILING = " \t:.,;)]}>"
# "touch: line 3: PATH", "make: *** [Makefile:4: PATH]": what stands before the subject.
_SEPARATOR = re.compile(r": |:\t")
_CUT = re.compile(r"(?<=: )['\"]?/[^\s'\"]{0,4096}(?:\.\.\.|…)\s*\Z")  # pytest's summary
_URL = re.compile(r"\b[a-z][a-z0-9+.-]*://", re.IGNORECASE)


def without_cut_path(line: str) -> str:
    """Without a path at the end of which only the beginning was printed."""
    return _CUT.sub("", line) if line.rstrip().endswith(("...", "…")) else line


def names(line: str, start: int, end: int) -> list[str]:
    """The names that the message with its reason at `start`…`end` may be about, likely first."""
    urls = [unquote(found.rstrip(_TRAILING)) for found in _FILE_URL.findall(line)]
    quoted = _after_quotes(line, end) + quoted_names(line[:start]) + quoted_names(line[end:])
    beside = _after(line[end:]) + _before(line[:start])
    # A quoted name is the subject; names near the reason are tried only without one.
    return _unique([*urls, *_drives(line), *quoted, *beside])[:MAX_NAMES]


def is_report(line: str, start: int, end: int) -> bool:
    """Whether the reason has the form of an error message, and is not part of a sentence."""
    before, after = line[:start].rstrip(), line[end:].strip()
    if before and before[-1] not in ":)]([,'\"":
        return False
    closed = after in {"", ".", "!"} or after[0] in ":,([" or ":" in after
    return closed or bool(before and (quoted_names(after) or absolute_names(after)))


def quoted_names(text: str) -> list[str]:
    """Names in quotes, at most MAX_NAMES. One pass: a quote that is never closed is not searched
    for again."""
    found: list[str] = []
    unclosed: set[str] = set()
    done = 0
    for match in islice(_OPENING.finditer(text), MAX_WORDS):
        mark, start = match.group(), match.end()
        if match.start() < done or mark in unclosed:
            continue
        ends = [at for at in (text.find(c, start) for c in _CLOSING[mark]) if at >= 0]
        if not ends:
            unclosed.add(mark)
            continue
        end = min(ends)
        if mark == "'" and text[end + 1 : end + 2] in _WORD:
            continue  # an apostrophe
        name = text[start:end].strip() if mark == "«" else text[start:end]
        done = end + 1
        if name and not _URL.match(name):
            found.append(name)
            if len(found) >= MAX_NAMES:
                break
    return found


def absolute_names(text: str) -> list[str]:
    """Every absolute path that stands as a word of its own."""
    found = (match.group(1).rstrip(_TRAILING) for match in _ABSOLUTE.finditer(text))
    return _unique(list(islice(found, MAX_WORDS)))


def context_names(lines: list[str]) -> list[str]:
    """Names from the lines just before, nearest first: cargo and fish put the path there."""
    found: list[str] = []
    for line in reversed(lines):
        found += quoted_names(line)
        found += absolute_names(line)
    return _unique(found)


def _after_quotes(line: str, end: int) -> list[str]:
    """`[Errno 13] Permission denied: 'p'`, `EACCES: permission denied, rename 'a' -> 'b'`."""
    rest = line[end:]
    return quoted_names(rest) if rest[:1] in {":", ","} else []


def _after(rest: str) -> list[str]:
    """`no such file or directory: p` (zsh), `NoSuchFileException: p` (Java)."""
    rest = _OS_ERROR.sub("", rest)
    if rest[:1] == ",":
        # node without quotes does not happen; "permission denied, mkdir p" of scripts does.
        return absolute_names(rest)
    if rest[:2] != ": ":
        return absolute_names(rest)[:1]
    subject = rest[2:].strip().rstrip(_TRAILING)
    return _subject(subject)


def _before(text: str) -> list[str]:
    """`prog: line 1: p: reason`, `p (reason)`, `open p: reason`, `cannot open output file p: …`."""
    text = text.rstrip().rstrip("([").rstrip()
    text = _NUMBER.sub("", text).rstrip().rstrip(":").rstrip()
    if not text:
        return []
    parts = _SEPARATOR.split(text)
    subjects = _subject(parts[-1])
    if len(parts) > 1 and not any("/" in name for name in subjects):
        # `p: cannot execute: reason`, `p: open: reason`
        subjects += _subject(parts[-2])
    return subjects


def _subject(text: str) -> list[str]:
    """The path in a phrase: all of it from the first slash, a single word, or the whole phrase."""
    text = text.strip().strip("'\"`")
    if not text or len(text) > MAX_NAME:
        return []
    found = absolute_names(text)
    slash = re.search(r"(?:^|\s)(/)", text)
    if slash is not None:
        # A name may hold blanks: from its slash to the end of the phrase it is still a path.
        whole = _REMARK.split(text[slash.start(1) :], maxsplit=1)[0]
        found = _unique([whole.rstrip(_TRAILING), *found])
    if found:
        return found
    words = text.split()
    last = words[-1].rstrip(_TRAILING)
    return _unique([last, text]) if len(words) > 1 else [last]


def _drives(line: str) -> list[str]:
    return [name.rstrip(_TRAILING) for name in _DRIVE.findall(line)]


def _unique(found: list[str]) -> list[str]:
    kept = [name for name in found if name and len(name) <= MAX_NAME and "\0" not in name]
    return list(dict.fromkeys(kept))
