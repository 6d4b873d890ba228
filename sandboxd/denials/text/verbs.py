"""The operation that a message reports: its verb decides read or write, and the remedy."""

from __future__ import annotations

import re
from typing import Literal

import msgspec

Direction = Literal["read", "write", "unknown"]


class Operation(msgspec.Struct, frozen=True):
    """`in_folder`: the entry in the folder changes, so the folder has to be writable. `parents`:
    missing folders above are made too."""

    name: str
    direction: Direction
    in_folder: bool = False
    parents: bool = False


_ENDS = 256
UNKNOWN = Operation("open", "unknown")

# First match wins. Words are those of coreutils, git, libuv, Go and the shells.
_TABLE: tuple[tuple[str, Operation], ...] = (
    (r"\bconnect\b|\bdial unix\b", Operation("connect", "read")),
    # Where a folder on the way cannot be made, node names the last one, and mostly says that it
    # is missing.
    (r"(?:ENOENT: no such file or directory|EACCES: permission denied), mkdir",
     Operation("mkdir", "write", in_folder=True, parents=True)),
    (r"mkdir|create (?:leading )?director|creating director|work tree dir|makedirs",
     Operation("mkdir", "write", in_folder=True)),
    (r"\bremov|\bunlink|\brm\b|rmdir|\bdelet", Operation("remove", "write", in_folder=True)),
    (r"\brenam|\bmov(?:e|ing)\b|\bmv:", Operation("rename", "write", in_folder=True)),
    (r"symlink|symbolic link|\bhard link|\blink\b|\bln:",
     Operation("link", "write", in_folder=True)),
    (r"temporary file|mkstemp|tempfile|\block\b|index\.lock|lock config file|could not lock",
     Operation("create", "write", in_folder=True)),
    (r"chmod|changing permissions|fchmod", Operation("chmod", "write")),
    (r"chown|changing ownership|changing group|lchown", Operation("chown", "write")),
    (r"setting times|utime", Operation("utime", "write")),
    (r"truncat", Operation("truncate", "write")),
    (r"for reading|cannot stat\b|cannot read|could not read|can't read|scandir|\bread\b|opendir"
     r"|open directory|\bexec|cannot execute|\bcd:|chdir|find module|can't open file|\binclude"
     r"|\bimport|cannot access|jarfile|bad interpreter|\bload|\bstat\b|lstat|readlink|\bsource:"
     r"|: not found",
     Operation("read", "read")),
    (r"\bcreat|\btouch\b|regular file|redirect", Operation("create", "write")),
    (r"\bwrit|\bsav(?:e|ing)\b|output file|not owned or is not writable|\bappend|\binstall\b"
     r"|readonly database|failed to update|copyfile", Operation("write", "write")),
)  # fmt: skip
_COMPILED = [(re.compile(pattern, re.IGNORECASE), operation) for pattern, operation in _TABLE]


def operation(line: str, name: str) -> Operation:
    """The operation that the line reports. The path itself is left out: it may hold such words."""
    if len(line) > 2 * _ENDS:
        line = line[:_ENDS] + line[-_ENDS:]  # the verb stands near one end
    text = line.replace(name, " ") if name else line
    for pattern, found in _COMPILED:
        if pattern.search(text):
            return found
    return UNKNOWN
