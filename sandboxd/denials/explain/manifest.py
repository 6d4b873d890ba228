"""Needs and denials → an explanation: what was refused, and the smallest sufficient manifest.

Pure. The manifest has an entry for each need and no more; siblings become their folder if that
folder holds little else (fold.py). A secret is never proposed, only named.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from sandboxd.denials import remedies
from sandboxd.denials.contents import HostLooks
from sandboxd.denials.context import Setting
from sandboxd.denials.explain.fold import fold_paths, too_wide
from sandboxd.denials.explain.needs import KINDS, Need
from sandboxd.denials.explain.secrets import denied_reason, homes_for, secret_reason
from sandboxd.denials.rules import permission_bits
from sandboxd.denials.rules.filesystem import NO_SHM
from sandboxd.denials.text.temporary_names import SHM, place_of
from sandboxd.denials.withheld import refusal, withheld
from sandboxd.policy.display_names import escape_controls, named
from sandboxd.policy.paths.within import is_below
from sandboxd.policy.plan import Access
from sandboxd_proto.denial import Denial
from sandboxd_proto.messages.explanation import Explanation, NeedAccess, NeedRow, NeedStatus

_FIELDS: dict[Access, str] = {"read": "fs_read_allow", "write": "fs_write_allow"}
_ACCESS: dict[str, NeedAccess] = {"network": "network", "syscall": "syscall", "process": "syscall"}
_ORDER = ("needed", "secret", "refused", "optional")
# What a client sends with every request, and what it leaves to the caller.
_NOT_KEPT = ("env",)
_PROTECTED = "protected: it can run code outside the sandbox later"
_MOST_ENTRIES = 20_000  # of folders that are looked at; in a thread of its own


Appeared = tuple[str, str | None]  # a path, and where it was moved


class ExplainRequest(msgspec.Struct, frozen=True):
    """The manifest of the request as it was sent, and what it was put on top of."""

    manifest: dict[str, Any]
    preset: str | None = None
    workspace: str | None = None


class _Candidate(msgspec.Struct, frozen=True):
    """A need with the path that would have to be granted for it; None: nothing can be."""

    need: Need
    grant: str | None
    secret: str | None
    note: str


def explanation(
    setting: Setting, needs: Iterable[Need], denials: Iterable[Denial], asked: ExplainRequest, *,
    failed: bool, appeared: Sequence[Appeared] = (), truncated: bool = False,
) -> Explanation:  # fmt: skip
    """`appeared`: protected paths that the kernel let the command make, undone afterwards."""
    others = [d for d in denials if d.kind not in KINDS]
    minded = _minded(list(needs), failed=failed and not (others or appeared))
    looks = HostLooks(setting.host, _MOST_ENTRIES)
    candidates = [_candidate(setting, need, looks) for need in minded]
    grants = _grants(setting, candidates, looks)
    rows = [_file_row(c, grants) for c in candidates]
    rows += [*map(_appeared_row, appeared), *map(_other_row, others)]
    missing: dict[str, Any] = {}
    for access, field in _FIELDS.items():
        entries = {c.grant: grants[access, c.grant] for c in candidates if _granted(c, access)}
        if entries:
            missing[field] = sorted(set(entries.values()))
    # A claim of the command is shown, and never written into a manifest.
    missing |= _merged_remedies([d for d in others if not d.claimed])
    return Explanation(
        needs=sorted(rows, key=lambda row: _ORDER.index(row.status)),
        secrets=sorted({escape_controls(c.need.path) for c in candidates if c.secret}),
        missing=missing,
        manifest=_whole(setting, asked, missing),
        preset=asked.preset,
        workspace=asked.workspace,
        truncated=truncated,
    )


def _minded(needs: list[Need], *, failed: bool) -> list[Need]:
    """When nothing else explains a failure, what a program tried to read may be the reason."""
    if not failed or any(need.weight == "needed" for need in needs):
        return needs
    telling = ("read", "exec", "enter")
    return [replace(n, weight="needed") if n.wanted in telling else n for n in needs]


def _candidate(setting: Setting, need: Need, looks: HostLooks) -> _Candidate:
    secret = secret_reason(setting, need.at)
    if secret is not None:
        return _Candidate(need, None, secret, secret)
    denied = denied_reason(setting, need.at)
    if denied is not None:
        return _Candidate(need, None, None, denied)
    if need.at.protected is not None:
        return _Candidate(need, None, None, _PROTECTED)
    if need.barrier is not None:
        return _Candidate(need, None, None, permission_bits.reason(setting, need.at, need.barrier))
    remedy = _remedy(setting, need)
    if remedy is None:
        return _Candidate(need, None, None, _why_not(setting, need))
    (entry,) = remedy[_FIELDS[need.access]]
    why = refusal(setting, remedy, looks, target=need.path)
    if why is not None:
        return _Candidate(need, None, None, f"not proposed: {why}")
    wide = setting.host.is_dir(entry) and too_wide(entry, homes_for(setting, entry))
    if need.access == "write" and wide:
        return _Candidate(need, None, None, _why_not(setting, need))
    return _Candidate(need, entry, None, "")


def _remedy(setting: Setting, need: Need) -> remedies.Remedy | None:
    if need.access == "read":
        return remedies.allow_read(setting, need.path)
    return remedies.allow_write(setting, need.path, in_folder=need.operation.in_folder)


def _why_not(setting: Setting, need: Need) -> str:
    if not setting.mounts and place_of(need.path) == SHM:
        return NO_SHM
    if not setting.host.permits(need.path, need.access):
        return f"this user may not {need.access} it outside the sandbox either"
    missing = remedies.first_missing(setting.host, need.path)
    if missing is not None:
        folder = named(missing)
        return f"the folder around it is too wide to allow: make {folder} first, then allow that"
    return "it is too wide to allow: a folder in it, made first, can be"


def _granted(candidate: _Candidate, access: Access) -> bool:
    need = candidate.need
    return candidate.grant is not None and need.access == access and need.weight == "needed"


def _grants(
    setting: Setting, candidates: list[_Candidate], looks: HostLooks
) -> dict[tuple[Access, str | None], str]:
    """(access, path to grant) → entry of the manifest. What may be written may be read."""
    written = [c.grant for c in candidates if _granted(c, "write")]
    writes = _folded(setting, written, "write", looks)
    reads = [c.grant for c in candidates if _granted(c, "read")]
    found: dict[tuple[Access, str | None], str] = {("write", p): e for p, e in writes.items()}
    found |= {("read", p): e for p, e in _folded(setting, reads, "read", looks).items()}
    return found


def _folded(
    setting: Setting, paths: list[str | None], access: Access, looks: HostLooks
) -> dict[str, str]:
    def wide(folder: str) -> bool:
        if too_wide(folder, homes_for(setting, folder)):
            return True
        if withheld(setting, folder, access, looks) is not None:
            return True
        return not setting.host.permits(folder, access)

    return fold_paths([path for path in paths if path is not None], wide)


def _file_row(candidate: _Candidate, grants: dict[tuple[Access, str | None], str]) -> NeedRow:
    need = candidate.need
    status: NeedStatus = "secret" if candidate.secret else need.weight
    if candidate.grant is None and not candidate.secret and need.weight == "needed":
        status = "refused"
    return NeedRow(
        access=need.access,
        target=escape_controls(need.path),
        operation=need.operation.name,
        status=status,
        grant=grants.get((need.access, candidate.grant)) if status == "needed" else None,
        note=escape_controls(candidate.note),
    )


def _appeared_row(one: Appeared) -> NeedRow:
    path, moved_to = one
    aside = "; what appeared was moved aside" if moved_to else ""
    return NeedRow(
        access="write",
        target=escape_controls(path),
        operation="create",
        status="refused",
        note=_PROTECTED + aside,
    )


def _other_row(denial: Denial) -> NeedRow:
    return NeedRow(
        access=_ACCESS.get(denial.kind, "limit"),
        target=denial.target or denial.kind,
        operation=denial.operation,
        status="optional" if denial.claimed else "needed" if denial.remedy else "refused",
        note="" if denial.remedy and not denial.claimed else denial.message,
    )


def _merged_remedies(denials: list[Denial]) -> dict[str, Any]:
    """The remedies of what is not a file, as one: hosts together, the higher limit of two."""
    found: dict[str, Any] = {}
    hosts: dict[str, None] = {}
    for denial in denials:
        for field, value in (denial.remedy or {}).items():
            if field == "network" and isinstance(value, dict):
                hosts |= dict.fromkeys(value["hosts"])
            elif isinstance(value, int | float) and field in found:
                found[field] = max(found[field], value)
            elif field != "syscall_policy" or found.get(field) != "inherit":
                found[field] = value
    if hosts and "network" not in found:
        found["network"] = {"kind": "allow_hosts", "hosts": list(hosts)}
    return found


def _whole(setting: Setting, asked: ExplainRequest, missing: dict[str, Any]) -> dict[str, Any]:
    """A manifest that stands alone: what was asked for, the preset's own values, and the rest."""
    plan = setting.plan
    network = plan.sandbox.network
    hosts = {"hosts": list(network.hosts)} if network.hosts else {}
    whole = {k: v for k, v in asked.manifest.items() if k not in _NOT_KEPT and v != "none"}
    whole |= {
        "base": plan.sandbox.base,
        "network": {"kind": network.kind, **hosts},
        "syscall_policy": plan.syscall_policy,
    }
    if asked.preset is not None and asked.workspace is not None:
        writable = setting.layout.writable(setting.host.canonical(asked.workspace))
        field = "fs_write_allow" if writable else "fs_read_allow"
        whole[field] = _union(whole.get(field), [asked.workspace])
    for field in _FIELDS.values():
        # A file inside a folder that is now writable would stay a mount point, which breaks
        # programs that save by renaming.
        kept = [p for p in whole.get(field, []) if not _freed(setting, p, missing)]
        if kept or field in missing:
            whole[field] = _union(kept, missing.get(field, []))
        else:
            whole.pop(field, None)
    return whole | {k: v for k, v in missing.items() if k not in _FIELDS.values()}


def _freed(setting: Setting, path: str, missing: dict[str, Any]) -> bool:
    if setting.host.is_dir(path):
        return False
    folders = missing.get("fs_write_allow", [])
    return any(is_below(path, folder) for folder in folders)


def _union(before: list[str] | None, more: list[str]) -> list[str]:
    return list(dict.fromkeys([*(before or []), *more]))
