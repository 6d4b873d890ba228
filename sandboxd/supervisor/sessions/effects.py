"""What a plan can do, from the plan alone: read, edit, reach or bare. Pure.

The command's text is never looked at: the sandbox enforces the plan, whatever the command is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import lru_cache

import msgspec

from sandboxd.policy.data.system_dirs import READABLE
from sandboxd.policy.paths.within import within, within_any
from sandboxd.policy.plan import Grant, Plan, SandboxSpec
from sandboxd_proto.manifest import Network
from sandboxd_proto.messages.approval import Effect, Reach


class Given(msgspec.Struct, frozen=True):
    """What grants add to every command of a session in a workspace. A path below a granted one is
    not given: who names it can lift a mask that the grant leaves."""

    write: frozenset[str] = frozenset()
    read: frozenset[str] = frozenset()
    has_host: Callable[[str], bool] = lambda host: False

    def has(self, grant: Grant) -> bool:
        return grant.path in self.write or (grant.access == "read" and grant.path in self.read)


_NOTHING = Given()


def effect_of(plan: Plan, *, bare: bool, given: Given = _NOTHING) -> Effect:
    """`bare`: the plan would run without a sandbox. `given`: what does not count, because grants
    give it to every command here."""
    if bare or plan.backend == "none":
        return "bare"
    if given is _NOTHING:
        return _known_effect(plan.sandbox, plan.workspace)
    return _effect(plan.sandbox, plan.workspace, given)


@lru_cache(maxsize=48)
def _known_effect(spec: SandboxSpec, workspace: str | None) -> Effect:
    return _effect(spec, workspace, _NOTHING)


def _effect(spec: SandboxSpec, workspace: str | None, given: Given) -> Effect:
    network = spec.network
    named_hosts = network.kind == "allow_hosts" and all(map(given.has_host, network.hosts))
    if spec.image is not None or not (network.kind == "deny" or named_hosts):
        return "reach"
    named = [grant for grant in spec.grants if grant.origin == "caller"]
    if not all(given.has(grant) or _is_at_home(grant, workspace) for grant in named):
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
