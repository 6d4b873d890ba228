"""A small file tree in memory: read by descriptor, compared later, written back.

An inode's time of last change cannot be set back by a command: a file that has the same one is
unchanged without being read again.
"""

from __future__ import annotations

import itertools
import os
import stat
import time
from dataclasses import dataclass, field

from sandboxd.platform.current import files
from sandboxd.platform.open_flags import NO_FOLLOW, OPEN_FOLDER, PRIVATE
from sandboxd.posix.descriptors import change_mode, give_to
from sandboxd.workspace_guard.dirfd import enter, is_distrusted, listable, read_file, stat_at
from sandboxd.workspace_guard.run_clock import COARSE_NS


@dataclass(slots=True)
class SnapshotBudget:
    """What all trees of one snapshot may cost together."""

    entries: int = 20_000
    bytes: int = 8 << 20


@dataclass(slots=True)
class Node:
    """`data`: a file's content or a link's target. `whole`: enough was kept to write it back.

    `seen`: all of it was looked at; otherwise a change below may go unnoticed.
    """

    status: os.stat_result
    data: bytes | None = None
    children: dict[str, Node] = field(default_factory=dict)
    whole: bool = True
    seen: bool = True
    kept_at_ns: int = field(default_factory=time.time_ns)

    @property
    def kind(self) -> int:
        return stat.S_IFMT(self.status.st_mode)


def keep(parent: int, name: str, budget: SnapshotBudget) -> Node:
    node = Node(os.stat(name, dir_fd=parent, follow_symlinks=False))
    budget.entries -= 1
    if node.kind == stat.S_IFDIR:
        _keep_children(node, parent, name, budget)
    elif node.kind == stat.S_IFLNK:
        node.data = os.fsencode(os.readlink(name, dir_fd=parent))
    elif node.kind == stat.S_IFREG and node.status.st_size <= budget.bytes:
        node.data = read_file(parent, name, budget.bytes)
        budget.bytes -= len(node.data or b"")
    if node.kind != stat.S_IFDIR:
        node.whole = node.data is not None
    return node


def _keep_children(node: Node, parent: int, name: str, budget: SnapshotBudget) -> None:
    folder = enter(parent, name)
    names = _names(folder, max(0, budget.entries)) if folder is not None else None
    if folder is None or names is None:
        node.whole = node.seen = False
    else:
        for entry in names:
            try:
                node.children[entry] = child = keep(folder, entry, budget)
            except FileNotFoundError:
                continue  # removed since it was listed
            node.whole &= child.whole
            node.seen &= child.seen
    if folder is not None:
        os.close(folder)


def same(parent: int, name: str, node: Node) -> bool:
    """Whether type, rights, owner and content are what they were, and it has no new name."""
    now, before = stat_at(parent, name), node.status
    if now is None:
        return False
    if (now.st_mode, now.st_uid, now.st_gid) != (before.st_mode, before.st_uid, before.st_gid):
        return False
    untouched = _moment(now) == _moment(before)
    if node.kind == stat.S_IFDIR:
        # For a folder whose content was not read only its ctime is known.
        return _same_children(parent, name, node) if node.seen or node.children else untouched
    if now.st_nlink > before.st_nlink:
        return False  # a hard link: it can be written under another name later
    if untouched and (_is_certain(node) or node.data is None):
        return True
    if node.kind == stat.S_IFLNK:
        return os.fsencode(os.readlink(name, dir_fd=parent)) == node.data
    return node.data is not None and read_file(parent, name, len(node.data)) == node.data


def is_untouched(parent: int, name: str, node: Node) -> bool:
    """Whether it is the same file, and nothing was written to it: one system call."""
    now = stat_at(parent, name)
    return now is not None and _is_certain(node) and _moment(now) == _moment(node.status)


def _is_certain(node: Node) -> bool:
    """Timestamps have the resolution of the kernel's clock tick: a very recent one proves
    nothing."""
    status = node.status
    return not is_distrusted(status.st_dev) and status.st_ctime_ns < node.kept_at_ns - COARSE_NS


def _moment(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_dev, status.st_ino, status.st_ctime_ns


def _same_children(parent: int, name: str, node: Node) -> bool:
    folder = enter(parent, name)
    if folder is None:
        return False
    try:
        # One name more than before is enough.
        names = _names(folder, len(node.children))
        return (
            names is not None
            and set(names) == set(node.children)
            and all(same(folder, entry, child) for entry, child in node.children.items())
        )
    finally:
        os.close(folder)


def write(parent: int, name: str, node: Node) -> None:
    """Write the tree where no entry of that name exists; OSError if one does."""
    if node.kind == stat.S_IFLNK:
        os.symlink(node.data or b"", os.fsencode(name), dir_fd=parent)
        return
    if node.kind == stat.S_IFDIR:
        os.mkdir(name, 0o700, dir_fd=parent)
        fd = os.open(name, OPEN_FOLDER, dir_fd=parent)
    else:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | NO_FOLLOW | PRIVATE
        fd = os.open(name, flags, 0o600, dir_fd=parent)
    try:
        for entry, child in node.children.items():
            write(fd, entry, child)
        try:
            _write_all(fd, node.data or b"")
        except OSError:
            os.unlink(name, dir_fd=parent)  # a half of a script could do something else
            raise
        if files.is_root():
            give_to(fd, node.status.st_uid, node.status.st_gid)
        change_mode(fd, stat.S_IMODE(node.status.st_mode))
        os.utime(fd, ns=(node.status.st_atime_ns, node.status.st_mtime_ns))
    finally:
        os.close(fd)


def _write_all(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]


def _names(folder: int, most: int) -> list[str] | None:
    """None if there are more, or it cannot be read. Rights are left as they are."""
    try:
        fd = listable(folder)
    except OSError:
        return None
    try:
        with os.scandir(fd) as entries:
            names = [entry.name for entry in itertools.islice(entries, most + 1)]
    finally:
        os.close(fd)
    return sorted(names) if len(names) <= most else None


def plain_files(node: Node) -> dict[str, bytes] | None:
    """The content of a folder of plain files; None if it is something else."""
    if node.kind != stat.S_IFDIR or not node.whole:
        return None
    found: dict[str, bytes] = {}
    for name, child in node.children.items():
        if child.kind == stat.S_IFDIR and name == "rewritten":
            continue  # old versions of git
        if child.kind != stat.S_IFREG or child.data is None:
            return None
        found[name] = child.data
    return found
