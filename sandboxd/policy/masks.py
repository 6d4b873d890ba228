"""Which host paths read as empty inside: what the manifest denies, secrets, the daemon's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandboxd.policy.canonical import Resolved
from sandboxd.policy.plan import Mask, SandboxSpec

if TYPE_CHECKING:
    from sandboxd.policy.resolve import Machine


def masks_for(spec: SandboxSpec, denied: list[Resolved], machine: Machine) -> tuple[Mask, ...]:
    """Only what exists is masked: masking a missing path would create it on the host."""
    wanted = {d.path: d.identity.is_dir for d in denied}
    for path in machine.own.hidden:
        wanted.setdefault(path, True)
    return tuple(sorted(Mask(path, is_dir) for path, is_dir in wanted.items()))
