"""Denials of a command → an addition to its manifest that an approver can allow with one key.

The remedies are tried first: they go through the policy as a whole, and those that it refuses are
left out. Never offered: secrets, the whole network, wildcards, a backend; only paths, hosts and
limits.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from sandboxd.denials.contents import HostLooks, Trait
from sandboxd.denials.host import host_view
from sandboxd.policy.data import shared_platforms, system_dirs
from sandboxd.policy.mounts import secret_paths
from sandboxd.policy.network.host_rules import HostInvalid, parse_rule
from sandboxd.policy.paths.within import within
from sandboxd.policy.plan import Plan
from sandboxd.policy.request import PolicyRequest
from sandboxd_proto.denial import Denial
from sandboxd_proto.errors import SandboxdError
from sandboxd_proto.manifest import Manifest, Network
from sandboxd_proto.messages.approval import Addition

PATHS = ("fs_read_allow", "fs_write_allow")
LIMITS = (
    "timeout", "max_memory_bytes", "max_cpu_secs", "max_cpus", "max_processes", "max_file_bytes",
    "max_output_bytes", "tmp_bytes", "shm_bytes",
)  # fmt: skip
# Folders that hold far more than the file that was asked for.
_TOO_WIDE = frozenset((*system_dirs.TOO_WIDE, *system_dirs.TOO_WIDE_TO_PROPOSE, "/tmp"))
_MORE_THAN_FILES: frozenset[Trait] = frozenset(
    ("unknown", "secret", "repository", "startup", "hidden", "private", "special")
)
PlanFor = Callable[[PolicyRequest], Plan]


def addition_for(
    denials: Sequence[Denial], policy: PolicyRequest, sent: Plan, plan_for: PlanFor
) -> Addition | None:
    """The sum of the remedies that the policy accepts; None if nothing is left."""
    pieces = [piece for denial in denials for piece in _pieces(denial, sent)]
    pieces = [piece for at, piece in enumerate(pieces) if piece not in pieces[:at]]
    kept = [piece for piece in pieces if _is_accepted([piece], policy, sent, plan_for)]
    if not kept or not _is_accepted(kept, policy, sent, plan_for):
        return None
    return _sum(kept)


def folders_of(
    add: Addition, policy: PolicyRequest, sent: Plan, plan_for: PlanFor
) -> Addition | None:
    """The same with the folder of each file; None if no file is in it, the policy refuses, or a
    folder holds more than ordinary files."""
    wider = dict(add)
    for name in PATHS:
        if name in add:
            wider[name] = sorted({_folder(path) for path in add[name]})
    if wider == add or not _is_accepted([wider], policy, sent, plan_for):
        return None
    looks = HostLooks(host_view(sent.sandbox.run_as))
    if any(looks.at(path) & _MORE_THAN_FILES for name in PATHS for path in wider.get(name, ())):
        return None
    too_wide = _TOO_WIDE | {dict(sent.env).get("HOME", "/").rstrip("/")}
    if any(path in too_wide for name in PATHS for path in wider.get(name, ())):
        return None
    return wider


def _folder(path: str) -> str:
    return path if os.path.isdir(path) else os.path.dirname(path)


def _pieces(denial: Denial, sent: Plan) -> list[Addition]:
    """A remedy as single additions: one path, one host or one limit each."""
    remedy = denial.remedy
    if remedy is None or denial.confidence == "low":
        return []
    found: list[Addition] = []
    for name, value in remedy.items():
        if name in PATHS:
            found += [{name: [path]} for path in value if not _is_secret(path)]
        elif name == "network" and isinstance(value, dict):
            network = sent.sandbox.network
            known = {*network.hosts, *network.named}
            hosts = [host for host in value.get("hosts", ()) if host not in known]
            found += [_network([host]) for host in hosts if _may_offer_host(host)]
        elif name in LIMITS:
            found.append({name: value})
    return found


def _network(hosts: list[str]) -> Addition:
    return {"network": {"kind": "allow_hosts", "hosts": hosts}}


def _may_offer_host(entry: str) -> bool:
    """One exact host, and not one of a shared platform."""
    try:
        rule = parse_rule(entry)
    except HostInvalid:
        return False
    shared = shared_platforms.platform_of(rule.name) is not None
    return not rule.wildcard and not shared and rule.address is None


def _is_secret(path: str) -> bool:
    """A default mask is lifted by a caller who names exactly that path: an offer never does."""
    parts = f"{os.path.normpath(path)}/"
    if any(within(path, secret) for secret in secret_paths.SYSTEM):
        return True
    return any(f"/{name.strip('/')}/" in parts for name in secret_paths.HOME)


def _is_accepted(
    pieces: Sequence[Addition], policy: PolicyRequest, sent: Plan, plan_for: PlanFor
) -> bool:
    merged = merge_addition(policy.manifest, _sum(pieces), sent)
    if merged is None:
        return False
    try:
        plan = plan_for(replace(policy, manifest=merged, manifest_given=True, preset=sent.preset))
    except SandboxdError:
        return False
    paths = [path for piece in pieces for name in PATHS for path in piece.get(name, ())]
    spec = plan.sandbox
    # A path that the policy masks or keeps read-only would be denied again.
    covered = [mask.path for mask in spec.masks] + [p.path for p in spec.protected if p.present]
    before = {mask.path for mask in sent.sandbox.masks}
    after = {mask.path for mask in spec.masks}
    lifted = any(mask not in after for mask in before)
    return not lifted and not any(within(path, one) for path in paths for one in covered)


def _sum(pieces: Sequence[Addition]) -> Addition:
    total: Addition = {}
    for piece in pieces:
        for name, value in piece.items():
            if name in PATHS:
                total[name] = list(dict.fromkeys([*total.get(name, ()), *value]))
            elif name == "network":
                before = total.get(name, {}).get("hosts", ())
                total[name] = _network(list(dict.fromkeys([*before, *value["hosts"]])))["network"]
            else:
                total[name] = value
    return total


def covers(grant: Addition, add: Addition) -> bool:
    """Whether a grant gives all of an addition."""
    for name, value in add.items():
        given: Any = grant.get(name)
        if name in PATHS:
            known = [*(given or ()), *(grant.get("fs_write_allow") or ())]
            if not all(any(within(path, one) for one in known) for path in value):
                return False
        elif name == "network":
            if not set(value["hosts"]) <= set((given or {}).get("hosts", ())):
                return False
        elif given != value:
            return False
    return True


def merge_addition(manifest: Manifest, add: Addition, sent: Plan) -> Manifest | None:
    """The manifest with a piece added; None if the request's own network or `fs_deny` forbids."""
    changes: dict[str, Any] = {}
    for name in PATHS:
        paths = add.get(name)
        if paths:
            if any(within(path, denied) for path in paths for denied in manifest.fs_deny or ()):
                return None
            changes[name] = list(dict.fromkeys([*(getattr(manifest, name) or ()), *paths]))
    network = add.get("network")
    if network is not None:
        if sent.sandbox.network.kind == "inherit":
            return None
        known = manifest.network.hosts if isinstance(manifest.network, Network) else []
        hosts = list(dict.fromkeys([*known, *network.get("hosts", ())]))
        changes["network"] = Network(kind="allow_hosts", hosts=hosts)
    for name in LIMITS:
        if name in add:
            changes[name] = add[name]
    try:
        return msgspec.convert(
            {**msgspec.to_builtins(manifest), **msgspec.to_builtins(changes)}, Manifest
        ) if changes else None  # fmt: skip
    except msgspec.ValidationError:
        return None
