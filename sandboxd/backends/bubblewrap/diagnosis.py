"""Why bwrap could not bring a sandbox up, and the exact fix, from its words and facts of this host.

The facts come first: bwrap's own words often name a sysctl that is not to blame.
"""

from __future__ import annotations

import errno
import os
import stat

import msgspec

from sandboxd.backends.interface import Unavailable
from sandboxd.config.setting_words import backend_words

_CONTAINER_MARKS = ("/.dockerenv", "/run/.containerenv")
_SECCOMP_FILTER = "2"
NOT_INSTALLED = Unavailable(
    "bwrap is not installed",
    "install bubblewrap: apt-get install bubblewrap, dnf install bubblewrap or "
    f"pacman -S bubblewrap; or {backend_words('docker')}",
)

HANGS = (
    "run `bwrap --ro-bind / / true` to see where it stops (a mount that does not answer, a wrapper "
    "named bwrap in PATH), or use the landlock or docker backend"
)

KILLED = (
    "send the request again; if it stays, look for what kills processes here (dmesg, a memory "
    "limit of the unit or container around the daemon)"
)

APPARMOR_PROFILE = """\
# /etc/apparmor.d/bwrap, then: apparmor_parser -r /etc/apparmor.d/bwrap
abi <abi/4.0>,
include <tunables/global>
profile bwrap {path} flags=(unconfined) {{
  userns,
}}
"""

# What bwrap says when the kernel refuses a namespace. Ubuntu's AppArmor lets it make one without
# capabilities: it fails later, at the uid map or at the loopback device.
_NO_NAMESPACE = (
    "No permissions to creat",  # bwrap before 0.5 wrote "creating"
    "Creating new namespace failed",
    "creating new namespace",
    "setting up uid map",
    "loopback: Failed",
    "user namespace",
)
_NO_FORK = ("Creating new namespace failed", "creating new namespace", "fork", "clone")
_TOO_MANY = ("ENOSPC", "No space left on device", "max_*_namespaces")
_NO_KERNEL_SUPPORT = (
    "does not support user namespaces",
    "Creating new namespace failed: Invalid argument",
    "Creating new namespace failed: Function not implemented",
)
_NO_MOUNT = (
    "Failed to make / slave",
    "Failed to mount",
    "pivot_root",
    "mount proc on",
    "mounting",
    "Can't mount",
    "Can't bind mount",
    "overflowuid",
)


class UsernsFacts(msgspec.Struct, frozen=True):
    """A sysctl is None where the kernel does not have it. `filtered`: a filter is around us."""

    apparmor_restricts: bool = False
    max_user_namespaces: int | None = None
    userns_clone: int | None = None
    setuid: bool = False
    root: bool = False
    container: bool = False
    filtered: bool = False

    @classmethod
    def current(cls, bwrap: str | None) -> UsernsFacts:
        return cls(
            apparmor_restricts=_sysctl("kernel.apparmor_restrict_unprivileged_userns") == 1,
            max_user_namespaces=_sysctl("user.max_user_namespaces"),
            userns_clone=_sysctl("kernel.unprivileged_userns_clone"),
            setuid=bwrap is not None and _is_setuid(bwrap),
            root=os.getuid() == 0,
            container=any(os.path.exists(mark) for mark in _CONTAINER_MARKS),
            filtered=_status("Seccomp") == _SECCOMP_FILTER,
        )


def mounts_moved(said: str) -> bool:
    """A mount of the host was gone when bwrap came to it, with its folder or without."""
    gone = os.strerror(errno.ENOENT), os.strerror(errno.EINVAL)
    return "Unable to apply mount flags" in said and any(words in said for words in gone)


def no_more_processes(said: str) -> bool:
    """EAGAIN of clone: a limit of the number of processes, and nothing that forbids namespaces."""
    return any(words in said for words in _NO_FORK) and os.strerror(errno.EAGAIN) in said


def explain(said: str, bwrap: str | None = None, facts: UsernsFacts | None = None) -> Unavailable:
    """`said`: what bwrap wrote to stderr, or what the init reported."""
    facts = facts or UsernsFacts.current(bwrap)
    said = said.strip() or "bwrap ended without a word"
    if any(words in said for words in _NO_KERNEL_SUPPORT):
        return Unavailable(
            f"this kernel has no user namespaces: {said}",
            "use a kernel with CONFIG_USER_NS (every distribution's since 2016), "
            "or the landlock or docker backend",
        )
    if any(words in said for words in (*_NO_NAMESPACE, *_TOO_MANY)):
        return _no_namespace(said, bwrap or "/usr/bin/bwrap", facts)
    if "Unexpected capabilities" in said:
        return Unavailable(
            f"sandboxd has capabilities without being root, which bwrap refuses: {said}",
            "start sandboxd without ambient capabilities (AmbientCapabilities= in the unit)",
        )
    if facts.setuid:
        return _setuid(said)
    if any(words in said for words in _NO_MOUNT):
        return _no_mount(said, facts)
    return Unavailable(
        f"bwrap failed: {said}", "run `sandboxctl doctor` for the facts of this host"
    )


def _no_namespace(said: str, bwrap: str, facts: UsernsFacts) -> Unavailable:
    cannot = f"bwrap cannot create a user namespace: {said}"
    if facts.apparmor_restricts and not facts.root:
        return Unavailable(
            f"{cannot}; kernel.apparmor_restrict_unprivileged_userns is 1",
            "install this AppArmor profile:\n" + APPARMOR_PROFILE.format(path=bwrap),
        )
    if facts.max_user_namespaces == 0:
        return Unavailable(
            f"{cannot}; user.max_user_namespaces is 0",
            "run: sysctl -w user.max_user_namespaces=15000 "
            "(to keep it: a line in /etc/sysctl.d/90-userns.conf)",
        )
    if facts.userns_clone == 0 and not facts.root:
        return Unavailable(
            f"{cannot}; kernel.unprivileged_userns_clone is 0",
            "run: sysctl -w kernel.unprivileged_userns_clone=1 "
            "(to keep it: a line in /etc/sysctl.d/90-userns.conf)",
        )
    if any(words in said for words in _TOO_MANY):
        return Unavailable(
            f"{cannot}; the limit of an outer namespace is reached",
            "raise user.max_user_namespaces (and max_net_namespaces, max_mnt_namespaces) on the "
            "host of this container; a nesting of 32 levels is the kernel's own limit",
        )
    if facts.setuid:
        return _setuid(said)
    if facts.filtered or facts.container:
        return Unavailable(
            f"{cannot}; a system call filter or container profile forbids it",
            "the landlock backend needs no namespaces and is used by itself where it works; or "
            "start the container with a seccomp profile that allows clone and unshare with "
            "CLONE_NEWUSER",
        )
    return Unavailable(
        cannot,
        "allow user namespaces for this user (user.max_user_namespaces, the policy of SELinux or "
        "AppArmor), or use the landlock or docker backend",
    )


def _setuid(said: str) -> Unavailable:
    return Unavailable(
        f"bwrap is setuid, which has no effect under no_new_privs: {said}",
        "remove the bit (chmod u-s on bwrap) and allow user namespaces to ordinary users "
        "(sysctl -w kernel.unprivileged_userns_clone=1)",
    )


def _no_mount(said: str, facts: UsernsFacts) -> Unavailable:
    where = "this container" if facts.container else "this container or sandbox"
    what = "mount /proc" if "proc on" in said or "overflowuid" in said else "mount"
    return Unavailable(
        f"{where} does not allow bwrap to {what}: {said}",
        "the landlock backend needs no mounts and is used by itself where it works; or start the "
        "container with --security-opt systempaths=unconfined and profiles of seccomp and AppArmor "
        "that allow mount",
    )


def _sysctl(name: str) -> int | None:
    try:
        with open(os.path.join("/proc/sys", *name.split(".")), encoding="ascii") as file:
            return int(file.read())
    except (OSError, ValueError):
        return None


def _is_setuid(path: str) -> bool:
    try:
        return bool(os.stat(path).st_mode & stat.S_ISUID)
    except OSError:
        return False


def _status(field: str) -> str | None:
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as file:
            lines = dict(line.split(":", 1) for line in file)
    except (OSError, ValueError):
        return None
    return lines.get(field, "").strip()
