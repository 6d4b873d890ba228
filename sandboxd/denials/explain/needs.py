"""Refused accesses reported by the kernel → what the command needs, and whether it is optional.

A refusal is the sandbox's only if the plan explains it. Not all of those matter: programs look for
settings in the home folder and in /etc, search PATH, and write caches beside what they read, and
work without them. Also for settings in the folders above the one that they start in. Such needs
are optional unless the command line names them or the program complains about them.
"""

from __future__ import annotations

import errno
import posixpath
from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec
from msgspec.structs import replace

from sandboxd.denials.context import RunEvidence, Setting
from sandboxd.denials.rules import filesystem, permission_bits
from sandboxd.denials.rules.path_status import PathStatus, held_in_place, path_statuses
from sandboxd.denials.rules.permission_bits import Barrier
from sandboxd.denials.text import subjects
from sandboxd.denials.text.line_classifier import LineClassifier
from sandboxd.denials.text.verbs import Operation
from sandboxd.policy.data.system_dirs import AMBIENT
from sandboxd.policy.mounts.mount_plan import MountKind
from sandboxd.policy.paths.within import is_below, within, within_any
from sandboxd.policy.plan import Access
from sandboxd.types import RefusedAccess, Wanted
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
_CGROUPS = "/sys/fs/cgroup"  # runtimes look for limits of their memory
_LEFTOVERS = ("/__pycache__", ".pyc")

Weight = Literal["needed", "optional"]


class Need(msgspec.Struct, frozen=True):
    """One path that was refused. `layer`: what refused it. `barrier`: whose permission bits."""

    at: PathStatus
    wanted: Wanted
    layer: Layer
    weight: Weight = "needed"
    barrier: Barrier | None = None

    @property
    def path(self) -> str:
        return self.at.path

    @property
    def operation(self) -> Operation:
        return _OPERATIONS[self.wanted]

    @property
    def access(self) -> Access:
        return "write" if self.operation.direction == "write" else "read"


def find_needs(
    classifier: LineClassifier, facts: RunEvidence, complaints: Iterable[Denial]
) -> list[Need]:
    """What was needed, in order, each path once. `complaints`: what the program's words said."""
    setting = classifier.setting
    named = _named_paths(classifier)
    spoken = [d.target for d in complaints if d.target]
    needs: dict[tuple[str, Access], Need] = {}
    for refused in facts.refused:
        need = _need(setting, refused, named)
        if need is None:
            continue
        minded = within_any(need.path, (*named, *spoken))
        if not minded and within(need.path, _CGROUPS):
            continue
        if not minded and _is_optional(setting, need):
            need = replace(need, weight="optional")
        key = (need.path, need.access)
        if key not in needs or (needs[key].weight, need.weight) == ("optional", "needed"):
            needs[key] = need
    return list(_without_ways(needs))


def denials(setting: Setting, needs: Iterable[Need]) -> list[Denial]:
    minded = [need for need in needs if need.weight == "needed"]
    told = [
        filesystem.kernel_denial(setting, n.at, n.operation, n.layer, n.barrier) for n in minded
    ]
    return told[:MAX_DENIALS]


def _need(setting: Setting, refused: RefusedAccess, named: list[str]) -> Need | None:
    path = posixpath.normpath(refused.path)
    for at in path_statuses(setting, path):
        layer = _refused_by(setting, at, refused)
        if layer is not None:
            return Need(_meant(setting, at, refused, named), refused.wanted, layer)
        barrier = _barrier(setting, at, refused)
        if barrier is not None:
            return Need(at, refused.wanted, "namespace", barrier=barrier)
    return None


def _refused_by(setting: Setting, at: PathStatus, refused: RefusedAccess) -> Layer | None:
    """The sandbox's layer that gave this answer; None if the host did."""
    writes = _OPERATIONS[refused.wanted].direction == "write"
    if at.place.kind in {MountKind.PROC, MountKind.DEV}:
        return None
    if refused.errno == 0:
        return "mount" if at.masked and at.on_host else None
    if refused.errno == errno.EROFS:
        # What is removed or renamed is an entry of its folder, which may be another mount.
        in_folder = _OPERATIONS[refused.wanted].in_folder
        where = posixpath.dirname(at.path) if in_folder else at.path
        return "mount" if writes and not setting.layout.writable(where) else None
    if refused.errno == errno.EBUSY:
        # A granted file is a mount point: it can be written, and neither replaced nor removed.
        granted = at.place.path == at.path and at.place.grant is not None
        kept = at.protected or held_in_place(setting, at.path)
        return "mount" if writes and (granted or kept) else None
    if refused.errno == errno.ENOENT:
        creates = refused.wanted in ("create", "rename")
        return "mount" if _hidden(setting, at, creates=creates) else None
    if refused.errno == errno.EPERM and setting.platform == "darwin":
        return "profile"  # the log that told it is that of the sandbox alone
    if refused.errno == errno.EACCES and setting.landlock:
        # The host's permission bits are checked first: they must not be the reason.
        ours = (at.plausible and not at.writable) if writes else at.hidden
        permitted = setting.host.permits(at.path, "write" if writes else "read")
        return "landlock" if ours and permitted else None
    return None


def _barrier(setting: Setting, at: PathStatus, refused: RefusedAccess) -> Barrier | None:
    did = _OPERATIONS[refused.wanted]
    if refused.errno == errno.EACCES:
        return permission_bits.barrier(setting, at, did)
    if refused.errno == errno.EPERM:
        return permission_bits.foreign_owner(setting, at, did)
    return None


def _hidden(setting: Setting, at: PathStatus, *, creates: bool) -> bool:
    if at.masked:
        return at.on_host and at.place.is_dir
    if at.hidden:
        return True
    new = creates and at.parent_on_host and not at.on_host  # also in a private /tmp
    return new and not setting.layout.exists(posixpath.dirname(at.path))


def _meant(
    setting: Setting, at: PathStatus, refused: RefusedAccess, named: list[str]
) -> PathStatus:
    """`mkdir -p` and similar fail at the first missing folder: the last one is needed."""
    if refused.wanted != "create" or not at.hidden or not setting.host.is_dir(at.path):
        return at
    deeper = [path for path in named if is_below(path, at.path)]
    return path_statuses(setting, deeper[0])[0] if deeper else at


def _without_ways(needs: dict[tuple[str, Access], Need]) -> Iterator[Need]:
    """Without what was only on the way to something that is written: folders to be made or looked
    at, and the look at the thing itself."""
    writes = [path for path, access in needs if access == "write"]
    for (path, access), need in needs.items():
        way = access == "read" or (need.wanted == "create" and need.at.on_host)
        if way and any(is_below(w, path) or (w == path and access == "read") for w in writes):
            continue
        yield need


def _is_optional(setting: Setting, need: Need) -> bool:
    path = need.path
    if need.access == "write":
        leftover = any(part in path for part in _LEFTOVERS)
        allowed_outside = need.barrier is not None or setting.host.permits(path, "write")
        return leftover or need.wanted == "probe" or not allowed_outside
    # Sockets and traces of other programs in /tmp are looked for, and mostly not there.
    if _is_above_start(setting, path):
        return True
    return _is_ambient(setting, path) or (need.wanted == "look" and within(path, "/tmp"))


def _is_above_start(setting: Setting, path: str) -> bool:
    """Package managers, compilers and test runners look for theirs in each folder above."""
    return is_below(setting.working_directory, posixpath.dirname(path))


def _is_ambient(setting: Setting, path: str) -> bool:
    env = dict(setting.plan.env)
    if within_any(path, AMBIENT) or posixpath.dirname(path) in env.get("PATH", "").split(":"):
        return True
    home = env.get("HOME", "").rstrip("/")
    return bool(home) and path.startswith(f"{home}/.")


def _named_paths(classifier: LineClassifier) -> list[str]:
    """Absolute paths that the command line names; what is relative is in the sandbox anyway."""
    names = subjects.absolute_names(classifier.command.text)
    return [posixpath.normpath(name) for name in names if name not in ("/", "//")]
