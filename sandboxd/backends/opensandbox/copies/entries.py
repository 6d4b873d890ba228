"""What is known of one copied path: what the sandbox has there, and what the host had."""

from __future__ import annotations

import os
import stat
from typing import Literal, NamedTuple

import msgspec

Kind = Literal["file", "dir", "link"]
MODE_BITS = 0o777  # set-id and sticky bits are not copied


class Stamp(NamedTuple):
    """Changes when a file of this machine is changed or replaced."""

    device: int
    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int
    mode: int

    @classmethod
    def of(cls, status: os.stat_result) -> Stamp:
        return cls(
            status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns,
            status.st_mode,
        )  # fmt: skip

    def is_same_content(self, status: os.stat_result) -> bool:
        """As equality, for a file that was renamed meanwhile: that changes its ctime."""
        return self[:4] == Stamp.of(status)[:4]


class CopyEntry(msgspec.Struct, frozen=True):
    """`content`: a file's SHA-256, a link's target; empty for a folder."""

    kind: Kind
    mode: int
    content: str = ""

    def same(self, other: CopyEntry | None) -> bool:
        return self == other


class Copied(msgspec.Struct, frozen=True):
    """A path that the sandbox has. `stamp`: the host's when both had the same; None: they differ,
    so that it is sent again before the next command."""

    entry: CopyEntry
    stamp: Stamp | None


def kind_of(mode: int) -> Kind | None:
    """None for what is not copied: sockets, FIFOs and devices."""
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "dir"
    return "link" if stat.S_ISLNK(mode) else None
