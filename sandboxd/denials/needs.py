"""Refused accesses, as the kernel told them → what the command needs, and how surely.

A refusal is ours only if the plan explains it. Not every one of those matters: programs look for
settings in the home folder and in /etc, along PATH, and leave caches beside what they read, all
without minding when they are refused. Such needs are optional unless the command line names them or
the program complains about them.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from sandboxd.denials import anatomy, filesystem
from sandboxd.denials.examiner import Examiner
from sandboxd.denials.facts import Facts, Setting
from sandboxd.denials.operations import Operation
from sandboxd.denials.standing import Standing, held_in_place, standings
from sandboxd.policy.layout import Kind
from sandboxd.policy.plan import Access
from sandboxd.sandbox import RefusedAccess, Wanted
from sandboxd_proto.denial import Denial, Layer

KINDS = frozenset({"filesystem_read", "filesystem_write", "protected_path"})
MAX_DENIALS = 24

_OPERATIONS: dict[Wanted, Operation] = {
    "look": Operation("look", "read"),
    "read": Operation("read", "read"),
    "exec": Operation("exec", "read"),
    "enter": Operation("enter", "read"),
    "write": Operation("write", "write"),
    "create": Operation("create", "write"),
    "remove": Operation("remove", "write", in_folder=True),
    "rename": Operation("rename", "write", in_folder=True),
    "change": Operation("change", "write"),
    "probe": Operation("write", "write"),
}
# Where every program looks for settings of the machine, and goes on without them.
_AMBIENT = ("/etc", "/sys", "/run", "/var", "/proc", "/dev", "/boot")
_LEFTOVERS = ("/__pycache__", ".pyc")

Weight = Literal["needed", "optional"]


@dataclass(frozen=True, slots=True)
class Need:
    """One path that was refused. `layer`: what refused it."""

    at: Standing
    wanted: Wanted
    layer: Layer
    weight: Weight = "needed"

    @property
    def path(self) -> str:
        return self.at.path

    @property
    def operation(self) -> Operation:
        return _OPERATIONS[self.wanted]

    @property
    def access(self) -> Access:
        return "write" if self.operation.direction == "write" else "read"


def found(examiner: Examiner, facts: Facts, complaints: Iterable[Denial]) -> list[Need]:
    """What was needed, in order, each path once. `complaints`: what the program's words said."""
    setting = examiner.setting
    named = _named_paths(examiner)
    spoken = [d.target for d in complaints if d.target]
    needs: dict[tuple[str, Access], Need] = {}
    for refused in facts.refused:
        need = _need(setting, refused, named)
        if need is None:
            continue
        minded = any(_related(need.path, path) for path in (*named, *spoken))
        if not minded and _is_optional(setting, need):
            need = replace(need, weight="optional")
        key = (need.path, need.access)
        if key not in needs or (needs[key].weight, need.weight) == ("optional", "needed"):
            needs[key] = need
    return list(_without_ways(needs))


def denials(setting: Setting, needs: Iterable[Need]) -> list[Denial]:
    minded = [need for need in needs if need.weight == "needed"]
    told = [filesystem.told(setting, n.at, n.operation, n.layer) for n in minded]
    return told[:MAX_DENIALS]


def _need(setting: Setting, refused: RefusedAccess, named: list[str]) -> Need | None:
    path = os.path.normpath(refused.path)
    for at in standings(setting, path):
        layer = _refused_by(setting, at, refused)
        if layer is not None:
            return Need(_meant(setting, at, refused, named), refused.wanted, layer)
    return None


def _refused_by(setting: Setting, at: Standing, refused: RefusedAccess) -> Layer | None:
    """The layer of ours that gave this answer; None when it was the host's own."""
    writes = _OPERATIONS[refused.wanted].direction == "write"
    if at.place.kind in {Kind.PROC, Kind.DEV}:
        return None
    if refused.errno == 0:
        return "mount" if at.masked and at.on_host else None
    if refused.errno == errno.EROFS:
        # What is removed or renamed is an entry of its folder, which may be another mount.
        in_folder = _OPERATIONS[refused.wanted].in_folder
        where = os.path.dirname(at.path) if in_folder else at.path
        return "mount" if writes and not setting.layout.writable(where) else None
    if refused.errno == errno.EBUSY:
        # A granted file is a mount point: it can be written, and neither replaced nor removed.
        granted = at.place.path == at.path and at.place.grant is not None
        kept = at.protected or held_in_place(setting, at.path)
        return "mount" if writes and (granted or kept) else None
    if refused.errno == errno.ENOENT:
        creates = refused.wanted in ("create", "rename")
        return "mount" if _hidden(setting, at, creates=creates) else None
    if refused.errno == errno.EACCES and setting.landlock:
        # The host's own bits are looked at first: they must not be the reason.
        ours = (at.plausible and not at.writable) if writes else at.hidden
        permitted = setting.host.permits(at.path, "write" if writes else "read")
        return "landlock" if ours and permitted else None
    return None


def _hidden(setting: Setting, at: Standing, *, creates: bool) -> bool:
    if at.masked:
        return at.on_host and at.place.is_dir
    if at.hidden:
        return True
    new = creates and at.parent_on_host and not at.on_host and not at.writable
    return new and not setting.layout.exists(os.path.dirname(at.path))


def _meant(
    setting: Setting, at: Standing, refused: RefusedAccess, named: list[str]
) -> Standing:
    """`mkdir -p` and its kind fail at the first folder on the way: the last one was meant."""
    if refused.wanted != "create" or not at.hidden or not setting.host.is_dir(at.path):
        return at
    deeper = [path for path in named if path.startswith(at.path.rstrip("/") + "/")]
    return standings(setting, deeper[0])[0] if deeper else at


def _without_ways(needs: dict[tuple[str, Access], Need]) -> Iterator[Need]:
    """Without what was only on the way to something that is written: folders to be made or looked
    at, and the look at the thing itself."""
    writes = [path for path, access in needs if access == "write"]
    for (path, access), need in needs.items():
        way = access == "read" or (need.wanted == "create" and need.at.on_host)
        inner = path.rstrip("/") + "/"
        if way and any(w.startswith(inner) or (w == path and access == "read") for w in writes):
            continue
        yield need


def _is_optional(setting: Setting, need: Need) -> bool:
    path = need.path
    if need.access == "write":
        leftover = any(part in path for part in _LEFTOVERS)
        allowed_outside = setting.host.permits(path, "write")
        return leftover or need.wanted == "probe" or not allowed_outside
    # Sockets and traces of other programs in /tmp are looked for, and mostly not there.
    return _is_ambient(setting, path) or (need.wanted == "look" and _inside(path, ("/tmp",)))


def _is_ambient(setting: Setting, path: str) -> bool:
    env = dict(setting.plan.env)
    if _inside(path, _AMBIENT) or os.path.dirname(path) in env.get("PATH", "").split(":"):
        return True
    home = env.get("HOME", "").rstrip("/")
    return bool(home) and path.startswith(f"{home}/.")


def _named_paths(examiner: Examiner) -> list[str]:
    """Absolute paths that the command line names; what is relative is in the sandbox anyway."""
    names = anatomy.absolute_names(examiner.command.text)
    return [os.path.normpath(name) for name in names if name not in ("/", "//")]


def _inside(path: str, folders: tuple[str, ...]) -> bool:
    return any(path == folder or path.startswith(folder + "/") for folder in folders)


def _related(path: str, other: str) -> bool:
    return path == other or path.startswith(other.rstrip("/") + "/")
