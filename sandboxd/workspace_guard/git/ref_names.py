"""Names in git's files: paths that git must not have in an index, and names of refs."""

from __future__ import annotations

import re

# Most paths have none of these and need no closer look. A component that starts with a dot, an
# empty one, NTFS's short name for .git, and the characters that HFS+ ignores.
_SUSPICIOUS = re.compile(rb"(?i)(?:^|[/\\])(?:\.|git~|/|$)|\xe2[\x80\x81]|\xef\xbb")
_IGNORED_BY_HFS = re.compile("[\u200c-\u200f\u202a-\u202e\u206a-\u206f\ufeff]")
_SEPARATORS = re.compile(r"[/\\]")
_DOT_GIT = ("." + "git", "git~1")

# git-check-ref-format: no control characters, blanks or ~^:?*[\, no "..", "@{" or "//", and no
# component that starts with a dot or ends with ".lock".
_REF = re.compile(rb"refs/[^\x00-\x20\x7f~^:?*\[\\]+")
_BAD_REF = re.compile(rb"\.\.|@\{|//|/\.|\.lock(?:/|\Z)|[/.]\Z")
_OID = re.compile(rb"[0-9a-fA-F]{40}(?:[0-9a-fA-F]{24})?")


def is_unsafe(path: bytes) -> bool:
    """Whether the path leaves the work tree or enters a git dir, on any system that git knows."""
    if not _SUSPICIOUS.search(path):
        return False
    if any(part in (b"", b".", b"..") for part in path.split(b"/")):
        return True
    text = _IGNORED_BY_HFS.sub("", path.decode(errors="surrogateescape"))
    return any(_is_dot_git(part) for part in _SEPARATORS.split(text))


def _is_dot_git(component: str) -> bool:
    """NTFS cuts off blanks and dots at the end, and takes what follows a colon as a stream."""
    return component.partition(":")[0].rstrip(" .").lower() in _DOT_GIT


def is_ref(name: bytes) -> bool:
    """A well-formed name below refs/."""
    return _REF.fullmatch(name) is not None and not _BAD_REF.search(name)


def is_oid(text: bytes) -> bool:
    return _OID.fullmatch(text) is not None
