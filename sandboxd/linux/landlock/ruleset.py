"""Building a ruleset: the descriptor that the init applies to itself.

Rules are tied to inodes when they are made, so a path that is swapped afterwards widens nothing,
and a ruleset made from host paths holds inside a sandbox where the same inodes are bound elsewhere.
"""

from __future__ import annotations

import os
import stat
import sys
from errno import ENOSYS
from functools import lru_cache
from typing import Self

import msgspec

from sandboxd.linux.landlock import abi as features
from sandboxd.linux.landlock import access, syscalls

# sizeof(struct landlock_ruleset_attr) up to the last field that an ABI knows.
_SIZE_FS, _SIZE_NET, _SIZE_SCOPE = 8, 16, 24


class RulesetSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What a domain allows. A path is a string or an open descriptor (O_PATH serves).

    read: files and folders that can be read, listed and executed.
    write: the same, and written, made, removed, moved, truncated.
    devices: device files, or folders of them, that can be opened both ways and take ioctls.
    device_ioctl: withhold ioctls on devices outside `write` and `devices`.
    deny_tcp: no TCP port can be bound or connected to, except those of the two lists.
    connect_ports, bind_ports: None leaves that direction free unless `deny_tcp`; a tuple
        allows these ports only.
    scope_abstract, scope_signal: no abstract sockets of, and no signals to, processes outside.
    """

    read: tuple[str | int, ...] = ()
    write: tuple[str | int, ...] = ()
    devices: tuple[str | int, ...] = ()
    device_ioctl: bool = True
    deny_tcp: bool = False
    connect_ports: tuple[int, ...] | None = None
    bind_ports: tuple[int, ...] | None = None
    scope_abstract: bool = False
    scope_signal: bool = False

    @property
    def wanted(self) -> frozenset[str]:
        """The names of the features that this spec asks for."""
        names = {"files", "refer", "truncate"}
        if self.device_ioctl:
            names.add("ioctl_dev")
        if self.handled_net:
            names.add("tcp")
        if self.scope_abstract:
            names.add("abstract")
        if self.scope_signal:
            names.add("signal")
        return frozenset(names)

    @property
    def handled_net(self) -> int:
        handled = 0
        if self.deny_tcp or self.bind_ports is not None:
            handled |= access.NET_BIND_TCP
        if self.deny_tcp or self.connect_ports is not None:
            handled |= access.NET_CONNECT_TCP
        return handled

    @property
    def scoped(self) -> int:
        abstract = access.SCOPE_ABSTRACT_UNIX_SOCKET if self.scope_abstract else 0
        return abstract | (access.SCOPE_SIGNAL if self.scope_signal else 0)


class Ruleset:
    """An open ruleset, close-on-exec. Processes stay confined after it is closed."""

    def __init__(self, fd: int, *, handled_fs: int, missing: tuple[str, ...]) -> None:
        self._fd = fd
        self.handled_fs = handled_fs
        self.missing = missing

    def fileno(self) -> int:
        if self._fd < 0:
            raise ValueError("the ruleset is closed")
        return self._fd

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def build_ruleset(spec: RulesetSpec, abi: int) -> Ruleset:
    """Build with the rights of `abi` (that of the kernel, or a lower one).

    FileNotFoundError names a path that was removed. Nothing stays open on failure.
    """
    known = min(abi, features.NEWEST_KNOWN_ABI)
    if known <= 0:
        raise OSError(ENOSYS, features.missing_features(0)[0])
    attr, size, missing = _attr(spec, abi)
    ruleset = Ruleset(
        syscalls.create_ruleset(attr, size), handled_fs=attr.handled_access_fs, missing=missing
    )
    try:
        if spec.read or spec.write or spec.devices:
            _add_paths(ruleset, spec, known)
        if known >= features.ABI_NET:
            _add_ports(ruleset, spec)
    except BaseException:
        ruleset.close()
        raise
    return ruleset


@lru_cache(maxsize=8)
def _attr(spec: RulesetSpec, abi: int) -> tuple[syscalls.RulesetAttr, int, tuple[str, ...]]:
    """What the kernel is told, and its size; and what this kernel lacks."""
    known = min(abi, features.NEWEST_KNOWN_ABI)
    handled_fs = access.access_handled(known)
    if not spec.device_ioctl:
        handled_fs &= ~access.IOCTL_DEV
    attr = syscalls.RulesetAttr(
        handled_fs,
        spec.handled_net if known >= features.ABI_NET else 0,
        spec.scoped if known >= features.ABI_SCOPE else 0,
    )
    return attr, _attr_size(known), features.missing_features(abi, names=spec.wanted)


def _attr_size(abi: int) -> int:
    if abi >= features.ABI_SCOPE:
        return _SIZE_SCOPE
    return _SIZE_NET if abi >= features.ABI_NET else _SIZE_FS


def _add_paths(ruleset: Ruleset, spec: RulesetSpec, abi: int) -> None:
    for paths, rights in (
        (spec.read, access.access_read(abi)),
        (spec.write, access.access_write(abi)),
        (spec.devices, access.access_dev(abi)),
    ):
        for path in paths:
            add_path(ruleset, path, rights)


def add_path(ruleset: Ruleset, path: str | int, rights: int) -> None:
    """Grant `rights`, as far as the ruleset handles them, on a path and what lies below it."""
    if sys.platform != "linux":
        raise OSError("Landlock exists on Linux only")
    # The caller resolved the path: a symlink that replaced it must not be followed.
    flags = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = path if isinstance(path, int) else os.open(path, flags)
    try:
        mode = os.fstat(fd).st_mode
        if stat.S_ISLNK(mode):
            raise OSError(f"{path}: is a symbolic link now; Landlock rules need the resolved path")
        allowed = rights if stat.S_ISDIR(mode) else access.on_file(rights)
        syscalls.add_path_rule(ruleset.fileno(), fd, allowed & ruleset.handled_fs)
    finally:
        if not isinstance(path, int):
            os.close(fd)


def _add_ports(ruleset: Ruleset, spec: RulesetSpec) -> None:
    for ports, right in (
        (spec.connect_ports, access.NET_CONNECT_TCP),
        (spec.bind_ports, access.NET_BIND_TCP),
    ):
        for port in ports or ():
            syscalls.add_port_rule(ruleset.fileno(), port, right)
