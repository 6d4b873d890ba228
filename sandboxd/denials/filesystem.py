"""A message about a file: ours only if the plan explains it, in the errno that our layers give.

Read-only mounts answer EROFS, hidden places ENOENT, mount points EBUSY, Landlock EACCES (and on
macOS the sandbox EPERM). The same words about a path that the plan allows are the program's own
affair, and so is EACCES where no layer of ours answers it: that is the host's permission bits.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

import msgspec

from sandboxd.denials import remedies
from sandboxd.denials.commandline import CommandLine
from sandboxd.denials.facts import Setting
from sandboxd.denials.operations import Operation, operation
from sandboxd.denials.standing import Standing, held_in_place, resolve, standings
from sandboxd.policy.layout import Kind
from sandboxd_proto.denial import Confidence, Denial, DenialKind, Layer

FILE_REASONS = ("EROFS", "EBUSY", "EACCES", "EPERM", "ENOENT", "unwritable", "unopened")


@dataclass(frozen=True, slots=True)
class Subject:
    """One name of a message, as it may be meant."""

    reason: str
    name: str
    at: Standing
    did: Operation
    shell: bool


def judge(
    setting: Setting, command: CommandLine, reason: str, names: list[str], line: str
) -> Denial | None:
    """The denial that `line` reports about the first of `names` that the plan explains."""
    rule = _RULES.get(reason)
    if rule is None or (reason == "EPERM" and setting.platform != "darwin"):
        return None
    for name in names:
        did = operation(line, name)
        if did.direction != "write" and command.writes(name):
            did = Operation("create", "write")
        shell = _from_shell(line)
        for path in resolve(setting, name, command.folders):
            for at in standings(setting, path):
                denial = rule(setting, Subject(reason, name, at, did, shell))
                if denial is not None:
                    return denial
    return None


def _from_shell(line: str) -> bool:
    head = line.split(":", 1)[0].rsplit("/", 1)[-1]
    return ": line " in line[:200] or head in {"sh", "bash", "dash", "zsh", "ksh", "fish"}


def _read_only(setting: Setting, s: Subject) -> Denial | None:
    if s.at.writable or not s.at.plausible:
        return None
    return _write(setting, s, "mount", "high")


def _busy(setting: Setting, s: Subject) -> Denial | None:
    """EBUSY is ours for mount points that we made: protected files, the folders above, grants."""
    one = s.at.protected or held_in_place(setting, s.at.path)
    if one is not None:
        return _protected(s, one.path)
    is_ours = s.at.place.path == s.at.path and s.at.place.kind in {Kind.WRITE, Kind.READ, Kind.MASK}
    if not is_ours or not s.at.on_host:
        return None
    moved = Operation("rename", "write", in_folder=True)
    return _write(setting, Subject(s.reason, s.name, s.at, moved, s.shell), "mount", "medium")


def _access(setting: Setting, s: Subject) -> Denial | None:
    at, host = s.at, setting.host
    if at.masked:
        return _masked(s, "high") if setting.masks_refuse and at.on_host else None
    if not setting.landlock and setting.platform == "linux":
        return None
    if at.place.kind in {Kind.PROC, Kind.DEV} or not at.plausible:
        return None
    if at.hidden and s.did.direction != "write" and host.permits(at.path, "read"):
        return _read(setting, s, "landlock", "high")
    if not at.writable and _writes(s) and host.permits(at.path, "write"):
        return _write(setting, s, "landlock", "medium" if at.visible else "high")
    return None


def _missing(setting: Setting, s: Subject) -> Denial | None:
    at = s.at
    if at.masked:
        return _masked(s, "high") if at.on_host and at.place.is_dir else None
    if at.hidden and s.did.direction != "write":
        return _read(setting, s, "mount", _sureness(at))
    if at.visible or at.place.kind in {Kind.PROC, Kind.DEV, Kind.PRIVATE} or at.writable:
        return None
    if s.did.direction == "write" and at.plausible and not _folder_visible(setting, at):
        return _write(setting, s, "mount", "high")
    # A shell prints one text for `> p`, `< p` and `p`. Reading or running what is not on the host
    # either would fail everywhere; writing it would not.
    if s.shell and s.did.direction == "unknown" and at.parent_on_host and not at.on_host:
        return _write(setting, s, "mount", "low") if not _folder_visible(setting, at) else None
    return None


def _unwritable(setting: Setting, s: Subject) -> Denial | None:
    # Programs that make folders on the way name the innermost one.
    likely = s.at.plausible or s.at.grandparent_on_host
    if s.at.writable or not likely or not setting.host.permits(s.at.path, "write"):
        return None
    # Without an errno a bare word is hardly ever a file.
    if s.at.place.kind in {Kind.PROC, Kind.DEV} or not ("/" in s.name or s.at.on_host):
        return None
    return _write(setting, s, "mount", "medium" if s.at.plausible else "low")


def _unopened(setting: Setting, s: Subject) -> Denial | None:
    """No errno: hidden from us, or new and not creatable; an existing visible file says nothing."""
    if s.at.hidden:
        return _read(setting, s, "mount", "medium")
    if s.did.direction == "read" or s.at.on_host or not os.path.isabs(s.name):
        return None
    return _unwritable(setting, s)


_RULES = {
    "EROFS": _read_only,
    "EBUSY": _busy,
    "EACCES": _access,
    "EPERM": _access,
    "ENOENT": _missing,
    "unwritable": _unwritable,
    "unopened": _unopened,
}


def _writes(s: Subject) -> bool:
    """An unknown operation was a write when reading was allowed, or nothing was there to read."""
    if s.did.direction == "unknown":
        return not s.at.on_host or (s.at.visible and not s.shell)
    return s.did.direction == "write"


def _sureness(at: Standing) -> Confidence:
    # A private /tmp may have held a file of that name of the command's own.
    return "medium" if at.place.kind == Kind.PRIVATE else "high"


def _folder_visible(setting: Setting, at: Standing) -> bool:
    return setting.layout.exists(os.path.dirname(at.path))


def _write(setting: Setting, s: Subject, layer: Layer, confidence: Confidence) -> Denial:
    if s.at.protected is not None:
        return _protected(s, s.at.protected.path)
    if s.at.masked:
        return _masked(s, confidence)
    name = s.did.name if s.did.direction == "write" else "write"
    path = s.at.path
    remedy = remedies.allow_write(setting, path, in_folder=s.did.in_folder)
    return _denial("filesystem_write", name, path, layer, confidence, _why_not(setting, s), remedy)


def _why_not(setting: Setting, s: Subject) -> str:
    path = s.at.path
    if not s.at.visible and s.at.place.kind != Kind.ROOT:
        state = "is not visible in the sandbox"
    else:
        state = "is not in fs_write_allow"
    text = f"{path} could not be written ({s.did.name}): it {state}"
    if not setting.host.permits(path, "write"):
        return text + "; this user could not write it outside either"
    missing = remedies.first_missing(setting.host, path)
    if missing not in {None, path}:
        return text + f". {missing} does not exist: make it first"
    if s.at.on_host and not s.did.in_folder and not setting.host.is_dir(path):
        return text + ". Programs that save by renaming need its folder instead of the file"
    return text


def _read(setting: Setting, s: Subject, layer: Layer, confidence: Confidence) -> Denial:
    path = s.at.path
    text = f"{path} exists on the host, and is not visible in the sandbox"
    remedy = remedies.allow_read(setting, path)
    return _denial("filesystem_read", "read", path, layer, confidence, text, remedy)


def _masked(s: Subject, confidence: Confidence) -> Denial:
    kind: DenialKind = "filesystem_write" if s.did.direction == "write" else "filesystem_read"
    return masked_denial(kind, s.at.path, s.at.place.path, confidence)


def told(setting: Setting, at: Standing, did: Operation, layer: Layer) -> Denial:
    """The denial for an access whose refusal the kernel itself told."""
    subject = Subject("", at.path, at, did, shell=False)
    if did.direction == "write":
        denial = _write(setting, subject, layer, "high")
    elif at.masked:
        denial = _masked(subject, "high")
    else:
        denial = _read(setting, subject, layer, "high")
    return msgspec.structs.replace(denial, evidence="kernel")


def masked_denial(kind: DenialKind, path: str, mask: str, confidence: Confidence) -> Denial:
    text = (
        f"{path} is masked ({mask} is denied to every command of this plan). Allowing its folder "
        "does not lift the mask: take it out of fs_deny if the manifest put it there"
    )
    name = "write" if kind == "filesystem_write" else "read"
    return _denial(kind, name, path, "mount", confidence, text, None)


def hidden_denial(setting: Setting, path: str, confidence: Confidence) -> Denial:
    text = f"the command names {path}, which exists on the host and is not visible in the sandbox"
    remedy = remedies.allow_read(setting, path)
    return _denial("filesystem_read", "read", path, "mount", confidence, text, remedy)


def _protected(s: Subject, protected: str) -> Denial:
    text = (
        f"{s.at.path} stays as it is: {protected} is protected, because it can run code outside "
        "the sandbox later. No manifest allows it"
    )
    name = s.did.name if s.did.direction == "write" else "write"
    return _denial("protected_path", name, s.at.path, "mount", "high", text, None)


def _denial(
    kind: DenialKind, name: str, path: str, layer: Layer, confidence: Confidence, text: str,
    remedy: remedies.Remedy | None,
) -> Denial:  # fmt: skip
    return Denial(
        kind=kind, operation=name, target=path, layer=layer, evidence="policy",
        confidence=confidence, message=text, remedy=remedy,
    )  # fmt: skip
