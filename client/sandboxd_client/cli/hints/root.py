"""Hints for commands that need what only root outside of a sandbox has: owners, ports, accounts."""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress

from sandboxd_proto.account_names import in_sentence

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
_COPIERS = ("cp", "rsync")
_KEEPS_OWNERS = re.compile(r"-\w*[ap]\w*$|--archive|--preserve|--owner|--perms")
_MODES = ("chmod", "install")
_SET_ID = re.compile(r"(-m)?(0?[2-7]\d{3}|[ugoa]*\+[rwxXt]*s\w*)")
_SANDBOXES = ("bwrap", "firejail", "sandboxctl", "sandboxd")
_KEPT_OUT = re.compile(rb"[Pp]ermission denied|not permitted|dubious ownership|EACCES|EPERM")
# What these print of an owner, an account or a mount, also where a script or make runs them.
_PRINTED = (
    re.compile(
        rb'^(?:\S*/)?(tar|cp|rsync|chown|chgrp|install): .*(?:ownership|group of|chown ")', re.M
    ),
    re.compile(
        rb"^(?:\S*/)?(%s): .*(?: lock\b|superuser|[Pp]ermission denied|not permitted|Read-only)"
        % "|".join((*_MOUNTS, *_ACCOUNTS)).encode(),
        re.M,
    ),
)
_KEEPING_OWNERS = {"tar": "-x", "cp": "-a", "rsync": "-a", "install": "-o"}
_OWNER_FLAGS = ("-o", "--owner", "-g", "--group")
NO_NUMBER = -1  # of a user of Windows
_MODE_FIRST = ("chmod",)
_FILE_TOOLS = ("touch", "mkdir", "rmdir", "rm", "cp", "mv", "ln", "cat", "ls", "tee", "stat",
               "head", "tail", "wc", "truncate", "chmod")  # fmt: skip


def root_hint(program: str, words: list[str]) -> str | None:
    """`words`: of the command that failed, its program's name first."""
    if program in BECOME:
        if is_root():
            return "a sandbox has one user, and nothing in it can become another; run that outside"
        return "nothing in a sandbox can become root; run what needs root outside of it"
    if program == "tar" and is_root() and _extracts(words):
        return (
            "a sandbox has one user, so the owners of the archive cannot be set, nor set-id bits: "
            "give tar --no-same-owner --no-same-permissions"
        )
    if program in _COPIERS and is_root() and any(map(_KEEPS_OWNERS.match, words)):
        return (
            "a sandbox has one user and one group, so the owners of files cannot be kept, nor "
            "set-id bits: cp -r, or rsync -a --no-o --no-g"
        )
    if program in _MODES and any(map(_SET_ID.fullmatch, words)):
        return "set-user-ID and set-group-ID bits cannot be set in a sandbox: set them outside"
    if program in _SANDBOXES:
        return "no sandbox can be made inside a sandbox: run it outside"
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
            else f"what {program} shows or changes is the machine's: run it outside of the sandbox"
        )
    return None


def printed_hint(errors: bytes | None) -> str | None:
    """For a program that another one ran: the end of stderr has its name and what failed."""
    for pattern in _PRINTED:
        if found := pattern.search(errors or b""):
            program = found[1].decode()
            return root_hint(program, [program, _KEEPING_OWNERS.get(program, "")])
    return None


def foreign_folder(options: Options, result: dict[str, Any]) -> str | None:
    """For root: a folder of another user, which only its owner may use in a sandbox."""
    if not is_root():
        return None
    from sandboxd_client.cli.plain_text import quote
    from sandboxd_client.cli.workspace import here, resolve, workspace

    refused = [
        str(denial.get("target"))
        for denial in result.get("denials") or []
        if denial.get("layer") == "namespace" and str(denial.get("kind")).startswith("filesystem")
    ]
    root = workspace(options.one("--workspace")) or here()
    shown = [*options.all("--write"), *options.all("--read")]
    if options.errors is not None and not _KEPT_OUT.search(options.errors):
        shown = []
    for path in [*refused, *map(resolve, shown)]:
        there = path if os.path.exists(path) else os.path.dirname(path)
        owner = _owner(there)
        if owner is not None and owner != _owner(root):
            instead = _left_by_root(there, root) or _instead(options.operands, there, owner)
            if path in refused:  # the denial has the reason
                return instead
            return (
                f"{quote(there)} belongs to {account(owner)}, and a command has only the rights "
                f"of its workspace's owner: {instead}"
            )
    return None


def _left_by_root(path: str, workspace: str) -> str | None:
    """What root made in another user's workspace: as a whole it can be the owner's again."""
    from sandboxd_client.cli.plain_text import quote

    if _owner(path) != 0 or not path.startswith(f"{workspace}/") or _has_another_name(path):
        return None
    while _owner(os.path.dirname(path)) == 0 and os.path.dirname(path) != workspace:
        path = os.path.dirname(path)
    uid = _owner(workspace) or 0
    whose = account(uid)
    user = uid if " " in whose else whose
    return f"if it is to belong to {whose}, outside: chown -R {user}: {quote(path)}"


def _has_another_name(path: str) -> bool:
    return not os.path.isdir(path) and os.stat(path).st_nlink > 1


# Folders of the system: none is writable for a command.
_NO_WORKSPACES = (
    "/bin/", "/boot/", "/dev/", "/etc/", "/lib", "/proc/", "/run/", "/sbin/", "/sys/", "/usr/",
    "/var/",
)  # fmt: skip


def _instead(argv: list[str], path: str, uid: int) -> str:
    """Its owner may have reasons for the permission bits. With -w the command starts elsewhere."""
    from sandboxd_client.cli.plain_text import quote

    folder = path if os.path.isdir(path) else os.path.dirname(path)
    system = folder == "/" or f"{folder}/".startswith(_NO_WORKSPACES)
    if _owner(folder) == uid and not system and _names_only(argv, folder):
        return f"-w {quote(folder)} runs it as {account(uid)}"
    return (
        "if the owner of the workspace may have it, change its owner or its permission bits outside"
    )


def _names_only(argv: list[str], folder: str) -> bool:
    """Whether it does the same wherever it starts, and with nothing but this folder."""
    if not argv or argv[0].rpartition("/")[2] not in _FILE_TOOLS:
        return False
    named = [os.path.normpath(word) for word in argv[1:] if "/" in word]
    bare = [word for word in argv[1:] if "/" not in word and word[:1] != "-"]
    if bare and argv[0].rpartition("/")[2] in _MODE_FIRST:
        bare = bare[1:]
    return bool(named) and not bare and all(f"{one}/".startswith(f"{folder}/") for one in named)


def given_up_for(workspace: str) -> int | None:
    """For root: the other user that a command in this workspace runs as."""
    return (_owner(workspace) or None) if is_root() else None


def user_inside(workspace: str) -> int:
    """The number of the user that a command in this workspace runs as."""
    other = given_up_for(workspace)
    if other is not None:
        return other
    if sys.platform == "win32":
        return NO_NUMBER
    return os.geteuid()


def has_home(workspace: str) -> bool:
    """Whether that user has a home folder; without one $HOME is the private /tmp."""
    return home_inside(workspace) not in ("", "/") and os.path.isdir(home_inside(workspace))


def closed_folder(path: str, uid: int) -> str | None:
    """For root: the folder on the way that does not let this user through. What such a user cannot
    reach cannot be mounted for a command."""
    if not is_root() or uid == 0:
        return None
    group = _group(uid)
    for folder in (*_way_to(path), *_way_to(os.path.realpath(path))):
        try:
            status = os.stat(folder)
        except OSError:
            return None
        bit = 0o100 if status.st_uid == uid else 0o010 if status.st_gid == group else 0o001
        if not status.st_mode & bit:
            return folder
    return None


def _way_to(path: str) -> list[str]:
    """The folders above it, from the root on; a link is not followed if it is the last name."""
    folders = [os.path.realpath(os.path.dirname(os.path.abspath(path)))]
    while folders[-1] != "/":
        folders.append(os.path.dirname(folders[-1]))
    return folders[::-1]


def _group(uid: int) -> int | None:
    if sys.platform != "win32":
        import pwd

        with suppress(KeyError):
            return pwd.getpwuid(uid).pw_gid
    return None


def home_inside(workspace: str) -> str:
    """The home folder of the user that a command runs as; empty: without an account."""
    uid = given_up_for(workspace)
    if uid is None or sys.platform == "win32":
        return os.path.expanduser("~")
    import pwd

    try:
        return pwd.getpwuid(uid).pw_dir
    except KeyError:
        return ""


def account(uid: int) -> str:
    """As a sentence names it."""
    if sys.platform != "win32":
        import pwd

        with suppress(KeyError):
            return in_sentence(pwd.getpwuid(uid).pw_name)
    return f"user {uid}"


def _owner(path: str) -> int | None:
    try:
        return os.stat(path).st_uid
    except OSError:
        return None


def _extracts(words: list[str]) -> bool:
    if _has_flag(words, ("--no-same-owner",)) and _has_flag(words, ("--no-same-permissions",)):
        return False
    first = words[1] if len(words) > 1 else ""
    letters = first.lstrip("-") if not first.startswith("--") else ""
    return "x" in letters or _has_flag(words, ("-x", "--extract", "--get"))


def _has_flag(words: list[str], names: tuple[str, ...]) -> bool:
    return any(word.partition("=")[0] in names for word in words)


def is_root() -> bool:
    return sys.platform != "win32" and os.geteuid() == 0
