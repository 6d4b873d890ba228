"""Set-user-ID files: no command may leave one on the host, under any policy.

A set-user-ID program that a sandboxed command makes is one outside the sandbox too, with the
rights of the daemon's user: `nosuid` on the sandbox's mounts does not help there. These gates are
in every filter, `inherit` included.

The set-group-ID bit is refused where a call makes a file. The init answers chmod with it
(notify/set_gid_chmod.c), because the bit is ordinary on folders (git init --shared, tar, rsync,
cp -p) and a filter cannot distinguish a folder from a file.
"""

from __future__ import annotations

from errno import ENOSYS, EPERM

from sandboxd.linux.seccomp.rules import ArgumentMatch, ArgumentRule, RuleGroup, has_bits

SET_UID, SET_GID = 0o4000, 0o2000
O_CREAT = 0o100
# The bit of O_TMPFILE that is not O_DIRECTORY.
O_TMPFILE = 0o20_000_000

_REASON = "a set-user-ID or set-group-ID program would stay on the host when the command ends"


def _chmod(call: str, mode: int) -> ArgumentRule:
    return _refuse(call, has_bits(mode, SET_UID))


def _make(call: str, mode: int) -> ArgumentRule:
    return _refuse(call, has_bits(mode, SET_UID | SET_GID))


def _open(call: str, flags: int, mode: int) -> ArgumentRule:
    """The mode counts only where a file is made; otherwise its register may hold anything."""
    return _refuse(call, has_bits(flags, O_CREAT | O_TMPFILE), has_bits(mode, SET_UID | SET_GID))


def _refuse(call: str, *matches: ArgumentMatch) -> ArgumentRule:
    return ArgumentRule(call, _REASON, refuse=((EPERM, matches),))


GATES: tuple[ArgumentRule, ...] = (
    _chmod("chmod", 1),
    _chmod("fchmod", 1),
    _chmod("fchmodat", 2),
    _chmod("fchmodat2", 2),
    _make("creat", 1),
    _make("mknod", 1),
    _make("mknodat", 2),
    _open("open", 1, 2),
    _open("openat", 2, 3),
)

OPENAT2 = RuleGroup(
    "openat2",
    "its mode lies behind a pointer where a filter cannot look; programs that know it use openat "
    "when it answers ENOSYS",
    ("openat2",),
    ENOSYS,
)
