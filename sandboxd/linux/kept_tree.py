"""A small file tree in memory: read by descriptor, compared later, written back.

An inode's time of last change cannot be set back by a command: a file that has the same one is
unchanged without being read again.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field

from sandboxd.linux.descent import enter, read_file


@dataclass(slots=True)
class Budget:
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

    @property
    def kind(self) -> int:
        return stat.S_IFMT(self.status.st_mode)


def keep(parent: int, name: str, budget: Budget) -> Node:
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


def _keep_children(node: Node, parent: int, name: str, budget: Budget) -> None:
    folder = enter(parent, name)
    names = _names(folder) if folder is not None else None
    if folder is None or names is None or len(names) > budget.entries:
        node.whole = node.seen = False
    else:
        for entry in names:
            node.children[entry] = child = keep(folder, entry, budget)
            node.whole &= child.whole
            node.seen &= child.seen
    if folder is not None:
        os.close(folder)


def same(parent: int, name: str, node: Node) -> bool:
    """Whether type, rights, owner and content are what they were."""
    try:
        now = os.stat(name, dir_fd=parent, follow_symlinks=False)
    except OSError:
        return False
    before = node.status
    if (now.st_mode, now.st_uid, now.st_gid) != (before.st_mode, before.st_uid, before.st_gid):
        return False
    untouched = _moment(now) == _moment(before)
    if node.kind == stat.S_IFDIR:
        # The time of a folder that was not looked into is all there is to go by.
        return _same_children(parent, name, node) if node.seen or node.children else untouched
    if untouched:
        return True
    if node.kind == stat.S_IFLNK:
        return os.fsencode(os.readlink(name, dir_fd=parent)) == node.data
    return node.data is not None and read_file(parent, name, len(node.data)) == node.data


def _moment(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_dev, status.st_ino, status.st_ctime_ns


def _same_children(parent: int, name: str, node: Node) -> bool:
    folder = enter(parent, name)
    if folder is None:
        return False
    try:
        names = _names(folder)
        return (
            names is not None
            and set(names) == set(node.children)
            and all(same(folder, entry, child) for entry, child in node.children.items())
        )
    finally:
        os.close(folder)


def write(parent: int, name: str, node: Node) -> None:
    """Make it again where nothing of that name is; OSError if something is."""
    if node.kind == stat.S_IFLNK:
        os.symlink(node.data or b"", os.fsencode(name), dir_fd=parent)
        return
    if node.kind == stat.S_IFDIR:
        os.mkdir(name, 0o700, dir_fd=parent)
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(name, flags, dir_fd=parent)
    else:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(name, flags, 0o600, dir_fd=parent)
    try:
        for entry, child in node.children.items():
            write(fd, entry, child)
        _write_all(fd, node.data or b"")
        if os.geteuid() == 0:
            os.fchown(fd, node.status.st_uid, node.status.st_gid)
        os.fchmod(fd, stat.S_IMODE(node.status.st_mode))
        os.utime(fd, ns=(node.status.st_atime_ns, node.status.st_mtime_ns))
    finally:
        os.close(fd)


def _write_all(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]


def _names(folder: int) -> list[str] | None:
    try:
        fd = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
    except OSError:
        return None
    try:
        return sorted(os.listdir(fd))
    finally:
        os.close(fd)
