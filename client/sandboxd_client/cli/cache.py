"""`sandboxctl cache list|prune`: the private package caches of workspaces."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from sandboxd_client.cli.connect import print_json
from sandboxd_client.cli.parse import Options
from sandboxd_client.cli.plain_text import quote
from sandboxd_client.cli.screen import say
from sandboxd_client.cli.workspace import account_home
from sandboxd_proto.amounts import shown_bytes
from sandboxd_proto.cache_locks import NOTES, note_of, unused
from sandboxd_proto.locations import caches_root


@dataclass(frozen=True)
class Cache:
    folder: str
    workspace: str | None  # None: no note says whose it is
    size: int

    @property
    def is_gone(self) -> bool:
        return self.workspace is not None and not os.path.lexists(self.workspace)

    def plain(self) -> dict[str, object]:
        return {"folder": self.folder, "workspace": self.workspace, "bytes": self.size,
                "gone": self.is_gone}  # fmt: skip


def list(options: Options) -> int:
    found = caches()
    if options.has("--json"):
        print_json({"caches": [cache.plain() for cache in found]})
        return 0
    for cache in found:
        gone = "  (gone)" if cache.is_gone else ""
        print(f"{_size(cache.size):>6}  {cache.workspace or cache.folder}{gone}")
    if found:
        print(f"{_size(sum(cache.size for cache in found)):>6}  in {', '.join(roots())}")
    else:
        say("no workspace has a cache yet")
    return 0


def prune(options: Options) -> int:
    chosen = [cache for cache in caches() if cache.is_gone or options.has("--all")]
    left = {cache.folder: why for cache in chosen if (why := _remove(cache.folder)) is not None}
    removed = [cache for cache in chosen if cache.folder not in left]
    if options.has("--json"):
        kept = [{"folder": folder, "why": why} for folder, why in left.items()]
        print_json({"removed": [cache.plain() for cache in removed], "kept": kept})
        return 0
    count = "1 cache" if len(removed) == 1 else f"{len(removed)} caches"
    freed = sum(cache.size for cache in removed)
    if removed or not left:
        say(f"removed {count}, {_size(freed)}" if removed else "nothing to remove")
    for folder, why in left.items():
        say(f"{quote(folder)} stays: {why}")
    return 0


def _remove(folder: str) -> str | None:
    """None, or why it stays."""
    with unused(folder) as is_unused:
        if not is_unused:
            return "a command or a sandbox uses it"
        shutil.rmtree(folder, ignore_errors=True)
        if os.path.lexists(folder):
            return "not all of it could be removed"
        with suppress(FileNotFoundError):
            os.unlink(note_of(folder))
    return None


def roots() -> Sequence[str]:
    """A daemon that was started for this user has the account's home, whatever $HOME is."""
    return [*dict.fromkeys((caches_root(), caches_root({}, account_home() or None)))]


def caches() -> Sequence[Cache]:
    return [cache for root in roots() for cache in _below(root)]


def _below(root: str) -> Sequence[Cache]:
    try:
        names = sorted(os.listdir(root))
    except OSError:
        return []
    folders = [os.path.join(root, name) for name in names if name != NOTES]
    return [
        Cache(folder, _workspace(root, os.path.basename(folder)), _used(folder))
        for folder in folders
        if os.path.isdir(folder) and not os.path.islink(folder)
    ]


def _workspace(root: str, name: str) -> str | None:
    try:
        with open(os.path.join(root, NOTES, name), "rb") as file:
            return os.fsdecode(file.read(8192).partition(b"\n")[2]) or None
    except OSError:
        return None


def _used(folder: str) -> int:
    total = 0
    for base, _, files in os.walk(folder):
        for name in files:
            try:
                total += os.lstat(os.path.join(base, name)).st_size
            except OSError:
                continue
    return total


def _size(value: int) -> str:
    for limit in (1 << 30, 1 << 20, 1 << 10):
        if value >= limit:
            return shown_bytes(round(value / limit, 1) * limit)
    return f"{value}B"
