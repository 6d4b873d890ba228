"""Messages about files: a denial only if the plan explains it, with the errno of a layer.

Read-only mounts answer EROFS, hidden paths ENOENT, mount points EBUSY, Landlock EACCES (and on
macOS the sandbox EPERM). The same text about a path that the plan allows is an ordinary error, and
so is EACCES where no layer answers it: that comes from the host's permission bits.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from sandboxd.denials import remedies
from sandboxd.denials.context import Setting
from sandboxd.denials.explain.secrets import hidden_by_default
from sandboxd.denials.rules import granted_itself, permission_bits
from sandboxd.denials.rules.path_status import PathStatus, held_in_place, path_statuses, resolve
from sandboxd.denials.rules.permission_bits import Barrier
from sandboxd.denials.text import subjects
from sandboxd.denials.text.command_line import CommandLine
from sandboxd.denials.text.temporary_names import SHM, place_of
from sandboxd.denials.text.verbs import Operation, operation
from sandboxd.policy.display_names import named
from sandboxd.policy.mounts.mount_plan import MountKind
from sandboxd.policy.paths.within import within
from sandboxd_proto.denial import Confidence, Denial, DenialKind, Layer

NO_SHM = (
    "this backend has no /dev/shm, so that POSIX semaphores and shared memory do not work; "
    "bubblewrap has one"
)
_ENDS = 2  # of a link
# How a stack shows sem_open(3) and shm_open(3), whose EACCES comes without a name.
_SHM_CALL = re.compile(r"\b(?:SemLock|_?sem_open|_?shm_open|_posixshmem)\b")
_ENDING = re.compile(r"\w\.\w{1,8}\Z")


class Subject(msgspec.Struct, frozen=True):
    """One name of a message, as it may be meant."""

    reason: str
    name: str
    at: PathStatus
    did: Operation
    shell: bool
    named: bool = False  # by the caller's own command line


def judge(
    setting: Setting, command: CommandLine, reason: str, names: list[str], line: str
) -> Denial | None:
    """The denial that `line` reports about the first of `names` that the plan explains."""
    rule = _RULES.get(reason)
    if rule is None or not _is_an_answer(setting, reason):
        return None
    quoted = subjects.quoted_names(line)
    for name in names:
        sure = not line or name in quoted or _looks_like_a_file(command, name, line)
        # Without a message of its own a name is judged as what was to be written.
        did = told = operation(line, name) if line else Operation("write", "write")
        if did.direction != "write" and command.writes(name, line):
            did = Operation("write" if command.changes(name) else "create", "write")
        if did.direction == "write" and command.replaces(name):
            did = replace(did, in_folder=True)
        shell, by_caller = _from_shell(line), name in command.text
        for path in resolve(setting, name, command.folders):
            entry, *linked = path_statuses(setting, path)
            through = told if command.changes_entry(name) else did
            for at in (entry, *linked):
                if not (sure or at.on_host):
                    continue  # a word of a sentence
                how = did if at is entry else through
                denial = rule(setting, Subject(reason, name, at, how, shell, by_caller))
                if denial is not None:
                    return denial
    return None


def judge_operation(setting: Setting, reason: str, name: str, did: Operation) -> Denial | None:
    """The denial that explains the kernel's own answer to an operation on `name`."""
    rule = _RULES.get(reason)
    if rule is None or not _is_an_answer(setting, reason):
        return None
    for path in resolve(setting, name, ()):
        for at in path_statuses(setting, path):
            denial = rule(setting, Subject(reason, name, at, did, shell=False))
            if denial is not None:
                return msgspec.structs.replace(denial, evidence="kernel")
    return None


def judge_shm(setting: Setting, lines: Iterable[str]) -> Denial | None:
    """EACCES of a POSIX semaphore or of shared memory: the lines of the stack name the call."""
    if setting.mounts or not any(_SHM_CALL.search(line[:1024]) for line in lines):
        return None
    text = f"a semaphore or shared memory could not be made: {NO_SHM}"
    return _denial("filesystem_write", "create", SHM, "landlock", "medium", text, None)


def judge_link(setting: Setting, command: CommandLine, names: list[str]) -> Denial | None:
    """EXDEV of a link or rename between two folders that are one file system on the host."""
    found: dict[str, str] = {}  # the mount or rule → the path in it
    for name in names:
        for path in resolve(setting, name, command.folders)[:1]:
            at = path_statuses(setting, path)[0]
            if at.plausible or at.writable:
                found.setdefault(at.place.path, at.path)
    if len(found) != _ENDS:
        return None
    (one, path), (other, target) = found.items()
    text = (
        f"{named(path)} and {named(target)} cannot be one file: in a sandbox nothing is linked or "
        f"renamed between {named(one)} and {named(other)}, as between two disks. Copy the file, or "
        "make a symbolic link"
    )
    return _denial("filesystem_write", "link", path, "mount", "medium", text, None)


def _is_an_answer(setting: Setting, reason: str) -> bool:
    """Whether a layer of the sandbox answers that: Landlock alone hides nothing, and no file system
    is read-only because of it."""
    by_mounts = reason in {"EROFS", "EBUSY", "ENOENT"}
    return setting.mounts or not by_mounts or setting.platform != "linux"


def _looks_like_a_file(command: CommandLine, name: str, line: str) -> bool:
    """One word with a slash or an ending; otherwise the command line has it, or a shell says it."""
    if " " not in name and ("/" in name or _ENDING.search(name) is not None):
        return True
    return command.names(name) or _from_shell(line)


def _from_shell(line: str) -> bool:
    head = line.split(":", 1)[0].rsplit("/", 1)[-1]
    return ": line " in line[:200] or head in {"sh", "bash", "dash", "zsh", "ksh", "fish"}


def _read_only(setting: Setting, s: Subject) -> Denial | None:
    if s.at.writable:
        return _replaced(setting, s, "mount")
    return _write(setting, s, "mount", "high") if s.at.plausible else None


def _busy(setting: Setting, s: Subject) -> Denial | None:
    """EBUSY is a denial for mount points of the sandbox: protected files, pins, grants. Their
    entries were to change, whatever verb the message has: git calls it writing."""
    if not s.did.in_folder:
        s = replace(s, did=Operation("rename", "write", in_folder=True))
    one = s.at.protected or held_in_place(setting, s.at.path)
    if one is not None:
        return _protected(s, one.path)
    is_ours = s.at.place.path == s.at.path and s.at.place.kind in {
        MountKind.WRITE,
        MountKind.READ,
        MountKind.MASK,
    }
    if not is_ours or not s.at.on_host:
        return None
    return _write(setting, s, "mount", "medium")


def _replaced(setting: Setting, s: Subject, layer: Layer) -> Denial | None:
    """What is writable by itself stays in its folder, where that is not writable."""
    own = granted_itself.changes(s.at, s.did) and s.at.on_host and s.at.path != "/"
    if not own or setting.layout.writable(posixpath.dirname(s.at.path)):
        return None
    return _write(setting, s, layer, "medium")


def _access(setting: Setting, s: Subject) -> Denial | None:
    at, host = s.at, setting.host
    if at.masked:
        return _masked(setting, s, "high") if setting.masks_refuse and at.on_host else None
    kept_out = permission_bits.judge(setting, at, s.did, shell=s.shell)
    if kept_out is not None:
        return kept_out
    if not setting.landlock and setting.platform == "linux":
        return None
    if s.did.parents and not at.plausible and _unmade_parents(setting, at):
        return _write(setting, s, "landlock", "medium")
    if at.place.kind in {MountKind.PROC, MountKind.DEV} or not at.plausible:
        return None
    if at.hidden and s.did.direction != "write" and host.permits(at.path, "read"):
        return _read(setting, s, "landlock", "high")
    if s.did.direction == "unknown" and at.on_host and not host.permits(at.path, "read"):
        return None  # reading it fails outside as well
    # Landlock alone answers as the permission bits do: a path may be closed by both.
    by_both = not setting.mounts and setting.platform == "linux"
    if not at.writable and _writes(setting, s) and (by_both or host.permits(at.path, "write")):
        return _write(setting, s, "landlock", "medium" if at.visible else "high")
    return _replaced(setting, s, "landlock") if at.writable else None


def _not_permitted(setting: Setting, s: Subject) -> Denial | None:
    owned = permission_bits.foreign_owner(setting, s.at, s.did)
    if owned is not None:
        return permission_bits.denial(setting, s.at, owned, "medium")
    return _access(setting, s) if setting.platform == "darwin" else None


def _missing(setting: Setting, s: Subject) -> Denial | None:
    at = s.at
    if at.masked:
        return _masked(setting, s, "high") if at.on_host and at.place.is_dir else None
    if at.hidden and s.did.direction != "write":
        return _read(setting, s, "mount", _sureness(at))
    if _behind_private(setting, s):
        return _write(setting, s, "mount", "medium")
    if s.did.parents:
        return _write(setting, s, "mount", "medium") if _unmade_parents(setting, at) else None
    if (
        at.visible
        or at.place.kind in {MountKind.PROC, MountKind.DEV, MountKind.PRIVATE}
        or at.writable
    ):
        return None
    new = at.plausible and not _folder_visible(setting, at)
    if s.did.direction == "write" and (at.hidden or new):
        return _write(setting, s, "mount", "high")
    # A shell prints one text for `> p`, `< p` and `p`, and most programs one for each way to open
    # a file. Reading or running what is not on the host either would fail everywhere; writing it
    # would not. What the command line names without a redirection is read.
    if s.named or s.did.direction != "unknown" or not at.parent_on_host or at.on_host:
        return None
    if _folder_visible(setting, at):
        return None
    if s.shell:
        return _write(setting, s, "mount", "low")
    return _perhaps_written(setting, s) if posixpath.isabs(s.name) else None


def _perhaps_written(setting: Setting, s: Subject) -> Denial | None:
    """What a program calls missing in a folder that only the host has."""
    path = s.at.path
    if not setting.host.permits(path, "write"):
        return None
    text = (
        f"{named(path)} is missing, and its folder {named(posixpath.dirname(path))} exists on the "
        "host, and is not visible in the sandbox: if it was to be written, the sandbox is the "
        "reason"
    )
    return _denial("filesystem_write", "write", path, "mount", "low", text, None)


def _unmade_parents(setting: Setting, at: PathStatus) -> bool:
    """Whether the folders above could be made outside, and not in the sandbox."""
    folder = remedies.existing_folder(setting.host, at.path)
    if at.place.kind in {MountKind.PROC, MountKind.DEV, MountKind.PRIVATE}:
        return False
    return not setting.layout.writable(folder) and setting.host.permits(folder, "write")


def _behind_private(setting: Setting, s: Subject) -> bool:
    """A write into a folder of the host's /tmp: the sandbox has a /tmp of its own without it."""
    at = s.at
    if at.place.kind != MountKind.PRIVATE or not at.parent_on_host or _folder_visible(setting, at):
        return False
    return s.did.direction == "write" or (s.shell and s.did.direction == "unknown" and not s.named)


def _unwritable(setting: Setting, s: Subject) -> Denial | None:
    # Programs that make folders on the way name the innermost one.
    likely = s.at.plausible or s.at.grandparent_on_host
    if s.at.writable:
        return permission_bits.judge(setting, s.at, Operation("write", "write"))
    if not likely or not setting.host.permits(s.at.path, "write"):
        return None
    # Without an errno a bare word is hardly ever a file.
    if s.at.place.kind in {MountKind.PROC, MountKind.DEV} or not ("/" in s.name or s.at.on_host):
        return None
    return _write(setting, s, "mount", "medium" if s.at.plausible else "low")


def _unopened(setting: Setting, s: Subject) -> Denial | None:
    """No errno: hidden from us, or new and not creatable; an existing visible file says nothing."""
    if s.at.hidden and s.did.direction == "write":
        return _write(setting, s, "mount", "medium")
    if s.at.hidden:
        return _read(setting, s, "mount", "medium")
    if s.did.direction != "write" or s.at.on_host or not posixpath.isabs(s.name):
        return None
    return _unwritable(setting, s)


_RULES = {
    "EROFS": _read_only,
    "EBUSY": _busy,
    "EACCES": _access,
    "EPERM": _not_permitted,
    "ENOENT": _missing,
    "unwritable": _unwritable,
    "unopened": _unopened,
}


def _writes(setting: Setting, s: Subject) -> bool:
    """An unknown operation was a write when reading was allowed, or nothing was there to read.

    Of a folder it is the reading: what writes into one names the file."""
    if s.did.direction == "unknown":
        read_only = s.at.visible and not s.shell and not setting.host.is_dir(s.at.path)
        return not s.at.on_host or read_only
    return s.did.direction == "write"


def _sureness(at: PathStatus) -> Confidence:
    # A private /tmp may have held a file of that name of the command's own.
    return "medium" if at.place.kind == MountKind.PRIVATE else "high"


def _folder_visible(setting: Setting, at: PathStatus) -> bool:
    return setting.layout.exists(posixpath.dirname(at.path))


def _write(setting: Setting, s: Subject, layer: Layer, confidence: Confidence) -> Denial:
    if s.at.protected is not None:
        return _protected(s, s.at.protected.path)
    if s.at.masked:
        return _masked(setting, s, confidence)
    name = s.did.name if s.did.direction == "write" else "write"
    path = s.at.path
    if s.at.place.kind in {MountKind.PROC, MountKind.DEV}:
        text = (
            f"{named(path)} could not be written: the kernel's files are read-only in the sandbox"
        )
        return _denial("filesystem_write", name, path, layer, confidence, text, None)
    # A folder that the sandbox hides was not to be made, moved or removed: something in it was.
    in_folder = s.did.in_folder and (s.at.visible or not setting.host.is_dir(path))
    remedy, text = remedies.allow_write(setting, path, in_folder=in_folder), _why_not(setting, s)
    if _in_read_only_workspace(setting, path):
        remedy = None  # another preset
    elif granted_itself.changes(s.at, s.did) and setting.layout.writable(posixpath.dirname(path)):
        remedy = None  # its folder is writable, and it is a mount in it
    elif remedy is None:
        wide = remedies.too_wide_to_write(setting, path, in_folder=in_folder)
        text += (
            f". No change is proposed: all of {named(wide)} would have to be writable"
            if wide
            else ""
        )
    return _denial("filesystem_write", name, path, layer, confidence, text, remedy)


def _in_read_only_workspace(setting: Setting, path: str) -> bool:
    workspace = setting.plan.workspace
    return setting.plan.preset == "read-only" and workspace is not None and within(path, workspace)


def _why_not(setting: Setting, s: Subject) -> str:
    path = s.at.path
    if _in_read_only_workspace(setting, path):
        return (
            f"{named(path)} could not be written: the preset read-only makes nothing writable"
            + (f". No change is proposed: {remedies.in_plan_mode(setting)}" if setting.plan_flags
               else "; with the preset workspace-write the workspace is")
        )  # fmt: skip
    if granted_itself.changes(s.at, s.did):
        return granted_itself.why_not(setting, s.at, s.did)
    if not setting.mounts and place_of(path) == SHM:
        return f"{named(path)} could not be written: {NO_SHM}"
    if not setting.mounts and not s.at.visible and place_of(path) in {"/tmp", "/var/tmp"}:
        state = "is the host's, and closed: $TMPDIR names a private folder for temporary files"
    elif s.at.place.kind == MountKind.PRIVATE:
        state = f"is the host's, and the sandbox has a {s.at.place.path} of its own"
    elif not s.at.visible and s.at.place.kind != MountKind.ROOT:
        state = "is not visible in the sandbox"
    else:
        state = "is not in fs_write_allow"
    plain = s.did.direction != "write" or s.did.name in {"write", "create"}
    how = "" if plain else f" ({s.did.name})"
    text = f"{named(path)} could not be written{how}: it {state}"
    if not setting.host.permits(path, "write"):
        return text + "; this user could not write it outside either"
    missing = remedies.first_missing(setting.host, path)
    makes_it = s.did.parents and remedies.allow_write(setting, path, in_folder=True) is not None
    if missing not in {None, path} and not makes_it:
        return text + f". {named(missing)} does not exist: make it first"
    if s.at.on_host and not s.did.in_folder and not setting.host.is_dir(path):
        return text + ". Programs that save by renaming need its folder instead of the file"
    return text


def _read(setting: Setting, s: Subject, layer: Layer, confidence: Confidence) -> Denial:
    path = s.at.path
    text = f"{named(path)} exists on the host, and is not visible in the sandbox"
    if not setting.host.permits(path, "read"):
        text += "; this user could not read it outside either"
    remedy = remedies.allow_read(setting, path)
    if _may_be_written(setting, s):
        text, remedy = f"{text}: a shell was to read it, run it or write it", None
    return _denial("filesystem_read", "read", path, layer, confidence, text, remedy)


def _may_be_written(setting: Setting, s: Subject) -> bool:
    """A shell prints one text for `> p`, `< p` and `p`; here the command line does not tell which
    it was."""
    if not s.shell or s.named or s.did.direction != "unknown" or setting.host.is_dir(s.at.path):
        return False
    return setting.host.permits(s.at.path, "write")


def _masked(setting: Setting, s: Subject, confidence: Confidence) -> Denial:
    kind: DenialKind = "filesystem_write" if s.did.direction == "write" else "filesystem_read"
    return masked_denial(setting, kind, s.at.path, s.at.place.path, confidence)


def kernel_denial(
    setting: Setting, at: PathStatus, did: Operation, layer: Layer, barrier: Barrier | None
) -> Denial:
    """The denial for an access whose refusal the kernel itself told."""
    subject = Subject("", at.path, at, did, shell=False)
    if barrier is not None:
        denial = permission_bits.denial(setting, at, barrier, "high")
    elif did.direction == "write":
        denial = _write(setting, subject, layer, "high")
    elif at.masked:
        denial = _masked(setting, subject, "high")
    else:
        denial = _read(setting, subject, layer, "high")
    return msgspec.structs.replace(denial, evidence="kernel")


def masked_denial(
    setting: Setting, kind: DenialKind, path: str, mask: str, confidence: Confidence
) -> Denial:
    """What is hidden by default is shown to a request that names it; nothing shows the rest."""
    hidden = "it" if path == mask else named(mask)
    text = f"{named(path)} is masked: "
    if mask in setting.plan.denied:
        text += f"fs_deny hides {hidden}, also where its folder is allowed"
        if path == mask and kind == "filesystem_read" and not setting.masks_refuse:
            text += "; commands see it empty"
    elif hidden_by_default(setting, mask):
        text += f"{hidden} is hidden unless it is allowed by its own name. No change is proposed: "
        text += "it is a secret, or holds one"
    else:
        text += f"{hidden} is hidden from every command of this plan, "
        text += "also where its folder is allowed"
    name = "write" if kind == "filesystem_write" else "read"
    return _denial(kind, name, path, "mount", confidence, text, None)


def hidden_denial(
    setting: Setting, path: str, confidence: Confidence, *, output: bool = False,
    empty: bool = False,
) -> Denial:  # fmt: skip
    """`empty`: the folder is there, and what the host has in it is not."""
    there = "which exists on the host and is not visible in the sandbox"
    there = "whose content on the host is not visible in the sandbox" if empty else there
    text = f"the command names {named(path)}, {there}"
    if empty and not setting.host.permits(path, "read"):
        text += "; this user could not read it outside either"
    if output:
        remedy = remedies.allow_write(setting, path, in_folder=False)
        return _denial("filesystem_write", "write", path, "mount", confidence, text, remedy)
    remedy = remedies.allow_read(setting, path)
    return _denial("filesystem_read", "read", path, "mount", confidence, text, remedy)


def _protected(s: Subject, protected: str) -> Denial:
    text = (
        f"{named(s.at.path)} stays as it is: {named(protected)} is protected, because it can run "
        "code outside the sandbox later"
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
