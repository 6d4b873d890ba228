"""Permission bits and owners that keep a command out of what its plan allows.

For a daemon of root: outside, root passes them. A sandboxed root has no capabilities, and a
command in a workspace of another user has that user's rights. For other daemons only what another
user owns and the plan makes writable: it is refused outside, too.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from typing import Literal

import msgspec

from sandboxd.denials.context import Setting
from sandboxd.denials.rules.path_status import PathStatus
from sandboxd.denials.text.verbs import Operation
from sandboxd.policy.display_names import named
from sandboxd.policy.plan import Access
from sandboxd_proto.denial import Confidence, Denial

_OF_OWNERS = frozenset({"chmod", "chown", "utime", "change"})
_DONE = {"read": "read", "write": "written", "own": "changed"}


class Barrier(msgspec.Struct, frozen=True):
    """`path`: whose bits refuse, or whose owner alone may do that (`own`)."""

    path: str
    wanted: Literal["read", "write", "own"]


def barrier(
    setting: Setting, at: PathStatus, did: Operation, *, shell: bool = False
) -> Barrier | None:
    """What answers EACCES to `did`; None: not the permission bits, or this user's own ones."""
    if not at.visible or not (_gives_up_root(setting) or _is_refused_outside(setting, at)):
        return None
    for target, wanted in _refusals(setting, at, did, shell=shell):
        found = setting.host.barrier(target, wanted, at.place.path)
        if found is not None and (_gives_up_root(setting) or _is_foreign(setting, found)):
            return Barrier(found, wanted)
    return None


def judge(
    setting: Setting, at: PathStatus, did: Operation, *, shell: bool = False
) -> Denial | None:
    found = barrier(setting, at, did, shell=shell)
    return denial(setting, at, found, "medium") if found is not None else None


def foreign_owner(setting: Setting, at: PathStatus, did: Operation) -> Barrier | None:
    """What answers EPERM: the bits, times and owner of a file are its owner's to change."""
    if not _gives_up_root(setting) or did.name not in _OF_OWNERS or not at.writable:
        return None
    file = setting.host.file(at.path) if at.visible else None
    return None if file is None or file.own else Barrier(at.path, "own")


def denial(setting: Setting, at: PathStatus, found: Barrier, confidence: Confidence) -> Denial:
    reads = found.wanted == "read"
    text = f"{named(at.path)} could not be {_DONE[found.wanted]}: {reason(setting, at, found)}"
    return Denial(
        kind="filesystem_read" if reads else "filesystem_write",
        operation="read" if reads else "write", target=at.path, layer="namespace",
        evidence="policy", confidence=confidence, remedy=None,
        message=f"{text}. The sandbox allows this path already",
    )  # fmt: skip


def reason(setting: Setting, at: PathStatus, found: Barrier) -> str:
    owner, name = setting.host.owner(found.path), setting.host.user()
    it = "it" if found.path == at.path else named(found.path)
    bits = "its permission bits" if it == "it" else f"the permission bits of {it}"
    if setting.host_root:
        if found.wanted == "own":
            return f"it belongs to {owner}, and a sandboxed root has no capability to change it"
        return f"{bits} keep root out, and a sandboxed root has no capability to pass them"
    if not _gives_up_root(setting):
        return f"{it} belongs to {owner}; this user could not {found.wanted} it outside either"
    whose = "its workspace" if setting.plan.workspace else "what it may write"
    user = f"the owner of {whose} ({name})"
    if found.wanted == "own":
        return f"it belongs to {owner}, and the command runs as {user}"
    keep_out = f"keep out {user}, as whom the command runs"
    if owner == name:
        return f"{bits} {keep_out}"
    return f"{it} belongs to {owner}, and its permission bits {keep_out}"


def _gives_up_root(setting: Setting) -> bool:
    return setting.host_root or setting.plan.sandbox.run_as is not None


def _is_refused_outside(setting: Setting, at: PathStatus) -> bool:
    return setting.platform == "linux" and not setting.host.permits(at.path, "write")


def _is_foreign(setting: Setting, path: str) -> bool:
    return setting.host.owner(path) != setting.host.user()


def _refusals(
    setting: Setting, at: PathStatus, did: Operation, *, shell: bool
) -> Iterator[tuple[str, Access]]:
    """Whose bits may have refused what. Where the folder lets an entry be replaced or removed, the
    entry could not be read: `sed -i` copies a file, `rm -r` lists a folder and changes it."""
    for wanted in _wanted(setting, at, did, shell=shell):
        yield posixpath.dirname(at.path) if did.in_folder else at.path, wanted
    if did.in_folder and at.writable and at.on_host:
        yield at.path, "read"
        if setting.host.is_dir(at.path):
            yield at.path, "write"


def _wanted(setting: Setting, at: PathStatus, did: Operation, *, shell: bool) -> Iterator[Access]:
    """What may have been refused. A message without a verb is about reading, unless that is
    permitted; a shell prints the same for a file that cannot be executed."""
    if did.direction != "write" and (at.writable or _gives_up_root(setting)):
        yield "read"
    unsaid = did.direction == "unknown" and not shell and not setting.host.is_dir(at.path)
    if at.writable and (did.direction == "write" or unsaid):
        yield "write"
