"""What a plan can do, from the plan alone: read, edit, reach or bare. Pure.

The command's text is never looked at: the sandbox enforces the plan, whatever the command is.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache

import msgspec

from sandboxd.policy.data.system_dirs import READABLE
from sandboxd.policy.paths.within import within, within_any
from sandboxd.policy.plan import Grant, Plan, SandboxSpec
from sandboxd_proto.manifest import Network
from sandboxd_proto.messages.approval import Effect, Reach


def effect_of(plan: Plan, *, bare: bool) -> Effect:
    """`bare`: the plan would run without a sandbox."""
    if bare or plan.backend == "none":
        return "bare"
    return _effect(plan.sandbox, plan.workspace)


@lru_cache(maxsize=48)
def _effect(spec: SandboxSpec, workspace: str | None) -> Effect:
    if spec.network.kind != "deny" or spec.image is not None:
        return "reach"
    named = [grant for grant in spec.grants if grant.origin == "caller"]
    if not all(_is_at_home(grant, workspace) for grant in named):
        return "reach"
    return "edit" if any(grant.access == "write" for grant in named) else "read"


def _is_at_home(grant: Grant, workspace: str | None) -> bool:
    if workspace is not None and within(grant.path, workspace):
        return True
    return grant.access == "read" and within_any(grant.path, READABLE)


def reach_of(plan: Plan) -> Reach:
    """What an approver is shown: the paths that the caller named, and the network."""
    named = [grant for grant in plan.sandbox.grants if grant.origin == "caller"]
    network = plan.sandbox.network
    return Reach(
        write=[grant.path for grant in named if grant.access == "write"],
        read=[grant.path for grant in named if grant.access == "read"],
        network=Network(kind=network.kind, hosts=list(network.hosts)),
    )


def fingerprint(plan: Plan, family: str) -> str:
    """What a run grant allows: any command in a sandbox of this shape. No inodes, no limits."""
    spec = plan.sandbox
    shape = {
        "base": spec.base,
        "grants": sorted((g.path, g.access) for g in spec.grants if g.origin == "caller"),
        "masks": sorted(mask.path for mask in spec.masks),
        "protected": sorted(one.path for one in spec.protected),
        "network": [spec.network.kind, sorted(spec.network.hosts)],
        "syscalls": plan.syscall_policy,
        "identity": [spec.run_as.uid, spec.run_as.gid] if spec.run_as else None,
        "image": spec.image,
        "backend": family,
    }
    encoded = msgspec.json.encode(shape, order="deterministic")
    return "sha256:" + hashlib.sha256(encoded).hexdigest()
