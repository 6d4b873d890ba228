"""Hints for commands that need what only root outside of a sandbox has: owners, ports, accounts."""

from __future__ import annotations

import os
import sys
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from sandboxd_client.cli.parse import Options

BECOME = ("sudo", "su", "doas", "pkexec", "run0", "runuser", "setpriv")
_OWNERS = ("chown", "chgrp")
_MOUNTS = ("mount", "umount", "losetup", "fusermount", "fusermount3", "swapon", "swapoff")
_ACCOUNTS = ("useradd", "adduser", "usermod", "userdel", "deluser", "groupadd", "addgroup",
             "groupmod", "groupdel", "delgroup", "gpasswd", "passwd", "chpasswd", "chsh", "chfn",
             "visudo", "vipw")  # fmt: skip
_MACHINE = ("hostname", "hostnamectl", "timedatectl", "localectl", "loginctl", "sysctl", "dmesg",
            "iptables", "ip6tables", "nft", "ufw", "ip", "ifconfig", "modprobe", "insmod", "rmmod",
            "systemctl", "service", "journalctl", "shutdown", "reboot", "poweroff", "chroot",
            "unshare", "nsenter", "mknod", "setcap")  # fmt: skip
_OWNER_FLAGS = ("-o", "--owner", "-g", "--group")
_LISTENS = ("--port", "--listen", "--bind", "http.server", "runserver")
_SERVERS = ("nc", "ncat", "netcat", "socat", "php", "flask", "rails", "npx", "serve", "http-server",
            "uvicorn", "gunicorn", "nginx", "caddy", "node", "ruby")  # fmt: skip
_LAST_OF_ROOT = 1023


def root_hint(program: str, words: list[str]) -> str | None:
    """`words`: of the command that failed, its program's name first."""
    if program in BECOME:
        if is_root():
            return "a sandbox has one user, and nothing in it can become another; run that outside"
        return "nothing in a sandbox can become root; run what needs root outside of it"
    if program == "tar" and is_root() and _extracts(words):
        return (
            "a sandbox has one user, so the owners of the archive cannot be set: "
            "give tar --no-same-owner"
        )
    if program in _OWNERS or (program == "install" and _has_flag(words, _OWNER_FLAGS)):
        return (
            "a sandbox has one user and one group, so files cannot be given to others; "
            "change owners outside"
        )
    if program in _MOUNTS:
        return (
            "nothing can be mounted in a sandbox: mount it outside, and show its folder with "
            "--read or --write"
        )
    if program in _ACCOUNTS:
        return "accounts are those of the machine: change them outside of the sandbox"
    if program in _MACHINE:
        return (
            f"root in a sandbox has no rights over the machine: run {program} outside"
            if is_root()
            else f"what {program} changes is the machine's: run it outside of the sandbox"
        )
    return _low_port(program, words)


def foreign_folder(options: Options, result: dict[str, Any]) -> str | None:
    """For root: a folder of another user, which only its owner may use in a sandbox."""
    if not is_root():
        return None
    from sandboxd_client.cli.place import here, resolve, workspace

    refused = [
        str(denial.get("target"))
        for denial in result.get("denials") or []
        if "permission bits keep root out" in str(denial.get("message"))
    ]
    root = workspace(options.one("--workspace")) or here()
    for path in [*refused, *map(resolve, (*options.all("--write"), *options.all("--read")))]:
        there = path if os.path.exists(path) else os.path.dirname(path)
        owner = _owner(there)
        if owner is not None and owner != _owner(root):
            return _belongs(there, owner)
    return None


def _belongs(path: str, uid: int) -> str:
    from sandboxd_client.cli.plain_text import quoted

    name = f"user {uid}"
    if sys.platform != "win32":
        import pwd

        with suppress(KeyError):
            name = pwd.getpwuid(uid).pw_name
    folder = path if os.path.isdir(path) else os.path.dirname(path)
    instead = (
        f"-w {quoted(folder)} runs it as {name}"
        if _owner(folder) == uid
        else "change its owner outside"
    )
    return (
        f"{quoted(path)} belongs to {name}, and a command has only the rights of its workspace's "
        f"owner: {instead}"
    )


def _owner(path: str) -> int | None:
    try:
        return os.stat(path).st_uid
    except OSError:
        return None


def _extracts(words: list[str]) -> bool:
    if _has_flag(words, ("--no-same-owner",)):
        return False
    first = words[1] if len(words) > 1 else ""
    letters = first.lstrip("-") if not first.startswith("--") else ""
    return "x" in letters or _has_flag(words, ("-x", "--extract", "--get"))


def _low_port(program: str, words: list[str]) -> str | None:
    """A number up to 1023 among the words of something that listens."""
    if program not in _SERVERS and not _has_flag(words, _LISTENS):
        return None
    for word in words[1:]:
        number = word.rpartition("=")[2].rpartition(":")[2]
        if number.isdecimal() and 0 < int(number) <= _LAST_OF_ROOT:
            return (
                f"if it wanted to listen at port {number}: nothing in a sandbox can at ports below "
                "1024, not even root; take a higher one"
            )
    return None


def _has_flag(words: list[str], names: tuple[str, ...]) -> bool:
    return any(word.partition("=")[0] in names for word in words)


def is_root() -> bool:
    return sys.platform != "win32" and os.geteuid() == 0
