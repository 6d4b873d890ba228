"""Remedies that are never given, whatever the evidence: an agent may apply every remedy.

No remedy names a secret, a start-up file, a protected path or another user's home, nor a folder
that holds one at any depth, or that one is to be made in. None names a path that cannot be written
down exactly, and none goes beyond what the daemon's config permits: the next request would be
refused. A path that only the command's words name is proposed only if it is an ordinary file or
folder.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from sandboxd.denials import beyond_ceiling, contents
from sandboxd.denials.contents import HostLooks
from sandboxd.denials.context import HostView, Setting
from sandboxd.denials.explain.secrets import homes_for
from sandboxd.denials.remedies import Remedy, in_plan_mode
from sandboxd.denials.withheld_hosts import network_refusal
from sandboxd.policy.data import protected_names, secrets, system_dirs
from sandboxd.policy.display_names import named
from sandboxd.policy.paths.refused_places import is_sealed
from sandboxd.policy.paths.within import is_below, within, within_any
from sandboxd.policy.plan import Access

_FIELDS: dict[str, Access] = {"fs_read_allow": "read", "fs_write_allow": "write"}
_ALLOWED: dict[Access, str] = {"read": "readable", "write": "writable"}
_EVERYBODYS = "/var/tmp"
_SYSTEM_SECRETS = tuple(path for group in secrets.SYSTEM for path in group.paths)
_HOME_SECRETS = tuple(path for group in secrets.HOME for path in group.paths)
_STARTUP = tuple(protected_names.HOME)
_DOORS = [[name] for name in protected_names.GIT_DIR]
# Programs in a home folder are there to be read.
_PROGRAMS = tuple(
    name for name, why in protected_names.HOME.items() if why.startswith("on people's PATH")
)
_UNREAD_STARTUP = tuple(name for name in _STARTUP if name not in _PROGRAMS)
_SECRET = "it is a secret, or holds one"
_STARTUP_FILE = "it is a start-up file, or holds one"
_LISTENER = "a program outside listens there, and does what it is asked with your rights"
_BEYOND = "the daemon's config does not permit it"
_UNFIT: dict[Access, set[contents.Trait]] = {
    "read": {"unknown", "secret", "hidden", "private", "special", "linked"},
    "write": {
        "unknown", "secret", "repository", "startup", "hidden", "private", "special", "foreign",
        "program", "linked",
    },
}  # fmt: skip
_WHY: dict[contents.Trait, str] = {
    "secret": "it is a secret, or holds one",
    "repository": "it holds a repository",
    "startup": "it is a start-up file, or holds one",
    "unknown": "it holds more than could be looked at",
    "hidden": "it is hidden, or holds hidden files",
    "private": "its name or mode says that it is private, or it holds such a file",
    "special": "it is a socket, pipe or device, or holds one",
    "foreign": "it is another user's, or holds another user's files",
    "program": "it may be a program or a program's settings, or hold some",
    "linked": "it has another name elsewhere (a hard link), or holds a file that has one",
}


def refusal(
    setting: Setting,
    remedy: Remedy | None,
    looks: HostLooks | None = None,
    *,
    claimed: bool = False,
    target: str | None = None,
) -> str | None:
    """Why a part of the remedy must not be proposed; None when all of it can be.

    `target`: what the remedy is for. A folder is not proposed for a start-up file to be made in it.
    """
    looks = looks or HostLooks(setting.host)
    for field, value in (remedy or {}).items():
        access = _FIELDS.get(field)
        if setting.plan_flags and not _fits_plan_mode(setting, field, value):
            return in_plan_mode(setting)
        if access is not None:
            reasons = (_of(setting, path, access, looks, claimed, target) for path in value)
            why = next(filter(None, reasons), None)
            if why is None and target is not None and target.startswith("/"):
                why = _in_any_spelling(setting, target, access, looks)
            if why is not None:
                return why
        elif field == "network":
            why = network_refusal(setting, value)
            if why is not None:
                return why
        elif field == "syscall_policy":
            if claimed:
                return "only the command's words ask for a weaker filter of system calls"
        elif not beyond_ceiling.limit_permitted(setting.ceiling, field, value):
            return _BEYOND
    return None


def _fits_plan_mode(setting: Setting, field: str, value: Any) -> bool:
    """Whether a request with this would run in plan mode."""
    if field == "fs_read_allow":
        at_home = (*system_dirs.READABLE, *filter(None, [setting.plan.workspace]))
        return all(within_any(path, at_home) for path in value)
    return field not in ("fs_write_allow", "network")


def _of(
    setting: Setting, path: str, access: Access, looks: HostLooks, claimed: bool, target: str | None
) -> str | None:
    """`withheld` in a sentence about the target, which may need its folder."""
    why = withheld(setting, path, access, looks, claimed=claimed)
    if why is None or target in (None, path) or not path.isprintable():
        return why
    return f"{named(path)} would have to be {_ALLOWED[access]}, and {why}"


def withheld(
    setting: Setting,
    path: str,
    access: Access,
    looks: HostLooks | None = None,
    *,
    claimed: bool = False,
) -> str | None:
    """Why the path is not proposed for this access; None when it can be.

    `claimed`: only the command's words name it.
    """
    if not path.isprintable() or "\ufffd" in path:
        return "its name cannot be written down exactly"
    return _in_any_spelling(
        setting, path, access, looks or HostLooks(setting.host), claimed=claimed
    )


def _in_any_spelling(
    setting: Setting, path: str, access: Access, looks: HostLooks, *, claimed: bool = False
) -> str | None:
    for one in dict.fromkeys([path, setting.host.canonical(path)]):
        why = _withheld(setting, one, access) or _by_content(setting, one, access, looks)
        if why is None and "special" in looks.at(one) and setting.host.listens_at(one):
            why = _LISTENER
        if why is None and claimed:
            why = _by_word_only(setting, one, access, looks)
        if why is not None:
            return why
    return None


def _withheld(setting: Setting, path: str, access: Access) -> str | None:
    workspace = setting.plan.workspace
    if workspace is not None and is_below(workspace, path):
        return "that would open a folder around the workspace"
    masks = [*(mask.path for mask in setting.plan.sandbox.masks), *setting.withheld]
    if within_any(path, masks):
        return "it is masked"
    closed = _closed_to_user(setting, path)
    if closed is not None:
        return closed
    if setting.host.foreign_home(path):
        return "it is another user's home, or lies in one"
    for mask in masks:
        if within(mask, path):
            return f"it holds {named(mask)}, which is masked"
    # A workspace's top folder is watched for new entries; what lies in it need not be protected.
    protected = setting.plan.sandbox.protected
    if _touches(path, [one.path for one in protected if one.rule != "top"]):
        return "it is protected, or holds what is"
    if any(within(one.path, path) for one in protected):
        return "it is protected, or holds what is"
    if _secret(setting, path):
        return _SECRET
    if _startup(setting, path, access):
        return _STARTUP_FILE
    if access == "write" and (is_sealed(path) or within_any(path, setting.own_code)):
        return "no request may make it writable"
    if access == "write" and _of_the_machine(path):
        return "it belongs to the whole machine"
    if not beyond_ceiling.in_roots(setting, path, access):
        return _BEYOND
    return None


def _closed_to_user(setting: Setting, path: str) -> str | None:
    """A daemon of root mounts as the workspace's owner: a folder that keeps that user out makes the
    next request fail, whatever the path's own bits are."""
    if setting.plan.sandbox.run_as is None:
        return None
    folder, user = setting.host.barrier(path, "read", "/"), setting.host.user()
    if folder is None or folder == path:
        return None
    return f"{user} cannot get there: {named(folder)} does not let {user} through"


def _by_content(setting: Setting, path: str, access: Access, looks: HostLooks) -> str | None:
    """Copies of secrets, repositories and tools' settings, wherever they are."""
    host = setting.host
    homes = homes_for(setting, path)
    if path in homes:
        return "it is a whole home folder"
    if any(_touches(path, looks.linked_from(home)) for home in homes):
        return _STARTUP_FILE
    traits = contents.name_traits(path)
    if "secret" in traits:
        return _SECRET
    if "startup" in traits:
        return _STARTUP_FILE
    if access == "write" and contents.in_git_dir(host, path):
        return "it is in a git dir"
    if within_any(path, system_dirs.READABLE):
        return None
    if looks.has_name_among(path, _kept_from(setting, homes, access)):
        return "it has another name, under which it is kept from commands, or holds such a file"
    if not host.is_dir(path):
        service = "hidden" in traits and "special" in looks.at(path)
        return "it is a hidden socket or pipe of another program" if service else None
    held = looks.at(path)
    if "secret" in held:
        return _SECRET
    if access == "write" and held & {"repository", "startup"}:
        return "it holds a repository, or files that run later"
    if access == "write" and "unknown" in held:
        return "it holds more than could be looked at"
    return None


def _kept_from(setting: Setting, homes: list[str], access: Access) -> Iterator[str]:
    """Paths that no remedy names: a hard link to one, or to a file in one, is the same file."""
    spec = setting.plan.sandbox
    yield from (mask.path for mask in spec.masks)
    yield from setting.withheld
    yield from (one.path for one in spec.protected if one.present)
    yield from _SYSTEM_SECRETS
    yield from (f"{home}/{name}" for home in homes for name in _HOME_SECRETS)
    startup = (f"{home}/{name}" for home in homes for name in _STARTUP)
    if access == "write":
        yield from (path for path in startup if not setting.host.is_dir(path))


def _by_word_only(setting: Setting, path: str, access: Access, looks: HostLooks) -> str | None:
    """A command can print any path: only what is neither private nor run by a program is proposed.

    Programs that are installed are there to be read.
    """
    if access == "read" and (
        within_any(path, system_dirs.READABLE) or _program_of_home(setting, path)
    ):
        return None
    why = not_ordinary(setting.host, path, access, looks)
    return f"only the command's words name it, and {why}" if why else None


def not_ordinary(host: HostView, path: str, access: Access, looks: HostLooks) -> str | None:
    """Why the path is more than an ordinary file, or a folder of such files."""
    if contents.in_git_dir(host, path):
        return "it is in a git dir"
    if access == "write" and contents.in_repository(host, path):
        return "it is in a repository"
    unfit = _UNFIT[access] & (contents.name_traits(path) | looks.at(path))
    return _WHY[min(unfit)] if unfit else None


def _program_of_home(setting: Setting, path: str) -> bool:
    return any(
        within(path, f"{home}/{name}") for home in homes_for(setting, path) for name in _PROGRAMS
    )


def _of_the_machine(path: str) -> bool:
    return not within(path, _EVERYBODYS) and within_any(path, system_dirs.MACHINE)


def _secret(setting: Setting, path: str) -> bool:
    if within_any(path, _SYSTEM_SECRETS):
        return True
    if _holds(setting, path, _SYSTEM_SECRETS):
        return True
    return _in_home(setting, path, _HOME_SECRETS)


def _startup(setting: Setting, path: str, access: Access) -> bool:
    names = _STARTUP if access == "write" else _UNREAD_STARTUP
    # In a folder that can be written a start-up file can be made.
    if _in_home(setting, path, names, absent_too=access == "write"):
        return True
    parts = path.lower().split("/")
    if ".git" not in parts:
        return False
    inner = parts[parts.index(".git") + 1 :]
    return access == "write" or inner[:1] in _DOORS


def _in_home(
    setting: Setting, path: str, names: Iterable[str], *, absent_too: bool = False
) -> bool:
    for home in homes_for(setting, path):
        inside = [f"{home}/{name}" for name in names]
        if within_any(path, inside) or _holds(setting, path, inside):
            return True
        if absent_too and any(is_below(one, path) for one in inside):
            return True
    return False


def _holds(setting: Setting, path: str, inner: Iterable[str]) -> bool:
    """Whether one of `inner` lies below `path`, and exists."""
    return any(is_below(one, path) and setting.host.exists(one) for one in inner)


def _touches(path: str, others: Iterable[str]) -> bool:
    return any(within(path, one) or within(one, path) for one in others)
